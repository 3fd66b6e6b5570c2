"""Tables in files and in memory: their columns, and batches of Arrow from those that DuckDB can't read itself."""

import csv
import errno
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.queries.columns import DATE
from graphfeed.ingest.queries.files import json_rows
from graphfeed.ingest.tables.arrow_types import arrow, as_integers, as_plain, json_type, plain_type
from graphfeed.ingest.tables.engine import connect
from graphfeed.ingest.tables.text_rows import csv_reader, open_text
from graphfeed.ingest.tfrecord.tfrecord_table import find_columns, has_records, read_example_columns
from graphfeed.ops.arguments import brief
from graphfeed.ops.process import local_path, natural_order, regular_file
from graphfeed.storage.memory import clear_headers, map_npy

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
EDGE_LISTS = (".txt", ".edges", ".edgelist")
CSV = {".csv": ",", ".tsv": "\t"}
"""Separator of the values, by suffix."""
NDJSON = (".ndjson", ".jsonl")
NUMPY = (".npy", ".npz")
TFRECORD = (".tfrecord", ".tfrecords")
TEXTS = (*CSV, *EDGE_LISTS)
"""Formats without types: all values are strings."""
SUFFIXES = (*PARQUET, *ARROW, *TEXTS, *NDJSON, *NUMPY, *TFRECORD)
COMPRESSED = (*TEXTS, *NDJSON, *TFRECORD)
"""Formats that may be followed by `.gz`."""
SHARD = re.compile(r"(\.tfrecords?)-\d+-of-\d+")
"""Ending of the names of a TFRecord file's shards."""
COMMENTS = ("#", "%")
"""First characters of comment lines, as in the files of SNAP and KONECT."""
PANDAS_INDEX = "__index_level_0__"
"""Column that pandas adds to a frame."""
LEAST_ARCHIVE = 1 << 24
"""Size in bytes that is always allowed for an archive of arrays."""
MOST_ROWS = 1 << 17
"""Number of rows of a table in memory to insert into the engine at a time."""

Batches: TypeAlias = Iterator[Any]


class TableSource:
    """A table: a file, or a frame in memory."""

    def __init__(
        self, source: Any, name: str, header: bool = True, pairs: bool = False, keys: Mapping[str, str] | None = None
    ) -> None:
        self.source, self.name, self.header, self.pairs = source, name, header, pairs
        self.keys, self.key_types = dict(keys or {}), dict[str, Any]()
        """Values of all rows from the names of folders, such as `year=2024`, and the types of these columns."""
        # The source is a path or a frame. With pairs, an array of shape (2, N), such as an edge list, has N rows.
        self.found: dict[tuple[str, bool], Any] = {}
        """Types of columns of strings, inferred from their values."""
        self.memory: int | None = None
        """Maximum size in bytes of a decompressed archive of arrays."""
        self.connection: Any = None
        """Connection to the engine, once there is one; opening one per file would take longer than a small file."""
        self.stream: Any = None
        """Stream of the frame, to be read once: a cursor of a database yields its rows a single time."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file, whose path is the table's name, rather than a frame."""
        return isinstance(self.source, Path)

    @cached_property
    def suffix(self) -> str:
        return suffix_of(self.source) if self.is_file else ""

    def is_empty(self) -> bool:
        if self.suffix not in TFRECORD:
            return False  # other formats have columns even without rows
        with naming([self], Exception):
            return not has_records(self.source)

    @cached_property
    def names(self) -> list[str]:
        """The columns, followed by the keys of folders."""
        return [*self.columns, *(key for key in self.keys if key not in self.columns)]

    @cached_property
    def columns(self) -> list[str]:
        if self.suffix not in TEXTS:
            return list(self.schema.names)
        with naming([self], Exception):
            _, line = self.first_line
            if line in ([], [""]):
                raise ValueError("it has no lines")
        return (
            [str(number) for number in range(len(line))] if self.is_unnamed else check_distinct_names(self.name, line)
        )

    @property
    def is_unnamed(self) -> bool:
        return self.suffix in EDGE_LISTS or not self.header

    def type_of(self, column: str, is_id: bool = False) -> Any:
        """Return the Arrow type of a column's values; strings may have another type if they are read as ids."""
        if self.suffix in TEXTS:
            return self.found[column, is_id]
        return self.schema.field(column).type if column in self.columns else self.key_types[column]

    def split(self, line: str) -> list[str]:
        return next(csv.reader([line], delimiter=CSV[self.suffix]))

    @cached_property
    def schema(self) -> Any:
        """Arrow schema of a table in a format with types, converted by `plain_type`."""
        with naming([self], Exception):
            schema = self._read_schema()
            schema = arrow().schema([column.with_type(plain_type(column.type)) for column in schema])
        check_distinct_names(self.name, schema.names)
        return schema

    def _read_schema(self) -> Any:
        if self.suffix in PARQUET:
            with arrow("parquet").ParquetFile(self.source) as file:
                return file.schema_arrow
        if self.suffix in NDJSON:
            return self._json_schema()
        if self.suffix in TFRECORD:
            return self._tfrecord_schema()
        self.stream = self._open()
        names = [name for name in self.stream.schema.names if name != PANDAS_INDEX]
        return arrow().schema([self.stream.schema.field(name) for name in names])

    def _open(self) -> Any:
        """Return a stream of batches from an Arrow or NumPy file, or from a frame."""
        if self.suffix in ARROW:
            return open_ipc(self.source)
        return as_stream(self._arrays() if self.suffix in NUMPY else self.source)

    @cached_property
    def first_line(self) -> tuple[int, list[str]]:
        """The first line with values, and the number of empty lines before it."""
        with open_text(self.source, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            if self.suffix in EDGE_LISTS:
                lines = (line for line in map(str.strip, file) if not line.startswith(COMMENTS))
                return 0, re.split(r"[ \t]+", next(filter(None, lines), "")) or [""]
            lines_of_values = enumerate(csv_reader(file, CSV[self.suffix]))
            return next(((number, line) for number, line in lines_of_values if line), (0, []))

    @property
    def head(self) -> int:
        """Number of lines before the first row: the names of the columns, and empty lines before them."""
        return 0 if self.is_unnamed else self.first_line[0] + 1

    def batches(self, columns: Sequence[str]) -> Batches:
        """Yield columns of a table that the engine can't read itself, in plain types and in the order of the rows."""
        with naming([self], Exception):
            for batch in self._batches([name for name in columns if name in self.columns]):
                batch.validate(full=True)  # so that damaged data raise an error instead of a read out of bounds
                found = dict(zip(batch.schema.names, map(as_plain, batch.columns), strict=True))
                for key in set(columns) - found.keys():
                    found[key] = arrow().array([self.keys[key]] * len(batch)).cast(self.key_types[key])
                yield arrow().table({name: as_integers(column) for name, column in found.items()})

    def _batches(self, columns: list[str]) -> Batches:
        if self.suffix in TFRECORD:
            texts = [name for name in columns if arrow().types.is_large_string(self.schema.field(name).type)]
            numbers = [name for name in columns if name not in texts]
            for rows in read_example_columns(self.source, numbers, texts):
                arrays = {name: (as_texts(*rows[name]) if name in texts else as_arrow(rows[name])) for name in columns}
                yield arrow().record_batch(arrays)
            return
        stream, self.stream = self.stream or self._open(), None
        for batch in stream:
            yield batch.select(columns)

    def _json_schema(self) -> Any:
        """Return the columns that occur in any line, with types from all lines."""
        with open_text(self.source, "rb") as lines:
            if not any(map(bytes.strip, lines)):
                raise ValueError("it has no lines")
        known = self.connection
        with connect() if known is None else nullcontext(known) as connection:
            found = connection.execute(f"FROM {json_rows(self.source)} LIMIT 0").description
        return arrow().schema([(name, json_type(str(kind))) for name, kind, *_ in found])

    def _tfrecord_schema(self) -> Any:
        pa = arrow()
        kinds = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.large_string()}
        columns = find_columns(self.source).items()
        return pa.schema(
            [(name, kinds[kind] if count == 1 else pa.list_(kinds[kind], count)) for name, (kind, count) in columns]
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a NumPy file; a `.npy` file is mapped."""
        if self.suffix == ".npy":
            array = map_npy(self.source)
            if self.pairs and array.ndim == 2 and len(array) == 2:
                array = array.T
            if array.ndim not in {1, 2}:
                raise ValueError(f"it must have one or two dimensions, but has shape {array.shape}")
            columns = array[:, None] if array.ndim == 1 else array
            return {str(number): columns[:, number] for number in range(columns.shape[1])}
        arrays = read_archive(self.source, self.memory)
        lengths = {name: len(array) if array.ndim else None for name, array in arrays.items()}
        if not arrays or len(set(lengths.values())) > 1 or None in lengths.values():
            raise ValueError(f"its arrays must have the same number of rows, but have {brief(lengths)}")
        return arrays


@contextmanager
def naming(sources: Sequence[TableSource], wrong: type[Exception] = ValueError) -> Iterator[None]:
    """Translate errors from a damaged file to a ValueError that names it, or the first of several files."""
    # Libraries that read such files raise almost anything; the engine raises ValueErrors, or errors about no file.
    try:
        yield
    except (FileNotFoundError, ImportError, MemoryError):
        raise
    except wrong as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG):
            raise  # the disk is full, which is not the table's fault
        text = str(error).strip()
        source = next((own for own in sources if own.name in text), sources[0])
        if isinstance(error, TypeError) and not source.suffix:
            raise  # it is not a table
        text = text.removeprefix(f"{source.name}: ") or type(error).__name__
        raise ValueError(f"{source.name} can't be read as {source.suffix or 'a table'}: {text}") from error


def check_distinct_names(table: str, names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{table} has two columns {double!r}; rename one")
    return names


def suffix_of(path: Path) -> str:
    """Return the suffix of a path that determines its format."""
    name = path.name.lower()
    stem, suffix = os.path.splitext(SHARD.sub(r"\1", name) if "-of-" in name else name)
    if suffix == ".gz" and (inner := os.path.splitext(stem)[1]) in COMPRESSED:
        return inner
    if suffix in SUFFIXES:
        return suffix
    raise ValueError(
        f"{path} has no suffix of a known format; known are {', '.join(SUFFIXES)}, and .gz after those of text and "
        "TFRecord files"
    )


def as_stream(frame: Any) -> Any:
    """Return batches of a data frame, of a dict of arrays, of a list of rows, or of anything with an Arrow stream."""
    pa = arrow()
    if isinstance(frame, Mapping):
        batches = slices({str(key): np.asarray(part) for key, part in frame.items()})
        first = next(batches)
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        names = dict.fromkeys(name for row in frame for name in row)
        frame = pa.table({str(name): [row.get(name) for row in frame] for name in names})
    elif not hasattr(frame, "__arrow_c_stream__"):
        try:
            frame = pa.table(frame)  # a batch, or a frame of an older pandas
        except (TypeError, ValueError) as error:
            text = "files: a table must be a path, a data frame, an Arrow table or a dict of arrays, but is"
            raise TypeError(f"{text} {brief(frame)}") from error
    return pa.RecordBatchReader.from_stream(frame)


def open_ipc(path: Path) -> Any:
    """Return a stream of an Arrow file, in the random access format or in the streaming format."""
    pa, ipc = arrow(), arrow("ipc")
    file = pa.memory_map(str(path))
    try:
        reader = ipc.open_file(file)
    except pa.ArrowInvalid:
        # A file that begins with these bytes has the random access format, so it is damaged.
        if bytes(file.read_at(6, 0)) == b"ARROW1":
            raise
        file.seek(0)
        return ipc.open_stream(file)
    batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


def slices(arrays: Mapping[str, NDArray[Any]]) -> Batches:
    """Yield batches of arrays, at least one even without rows."""
    for start in range(0, max(1, *map(len, arrays.values())), MOST_ROWS) if arrays else [0]:
        part = {name: as_arrow(np.asarray(array[start : start + MOST_ROWS])) for name, array in arrays.items()}
        yield arrow().record_batch(part or {"": []})


def as_arrow(array: NDArray[Any]) -> Any:
    pa = arrow()
    if array.dtype.kind == "T":  # NumPy's `StringDType`
        return pa.array(array.astype(object), pa.large_string(), from_pandas=True)
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if native.ndim == 1:
        # NumPy converts an empty list to floats.
        return pa.array(native) if len(native) or native.dtype != np.float64 else pa.nulls(0)
    if native.ndim != 2 or native.shape[1] == 0:
        raise ValueError(f"an array of shape {array.shape} can't be a column; its rows must be numbers or vectors")
    return pa.FixedSizeListArray.from_arrays(pa.array(native.reshape(-1)), native.shape[1])


def as_texts(offsets: NDArray[np.int64], values: NDArray[np.uint8]) -> Any:
    pa = arrow()
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(values))


def read_archive(path: Path, memory: int | None, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return arrays of a `.npz` file, by default all, or raise a MemoryError if they exceed the memory limit."""
    # Open the file here, because NumPy leaves the file of a damaged archive open.
    with open(path, "rb", opener=regular_file) as opened, np.load(opened, allow_pickle=False) as file:
        names = file.files if names is None else names
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in file.zip.infolist()}
        size = sum(sizes.get(name, 0) for name in names)
        if memory is not None and size > max(memory, LEAST_ARCHIVE):
            raise MemoryError(
                f"{path} has arrays of {size} bytes, but memory is {memory}; give more, or save `.npy` files, which "
                "are mapped"
            )
        with clear_headers():
            return {name: file[name] for name in names}


def find_sources(
    files: Sequence[Any], folder: Path, *, header: bool, pairs: bool, memory: int | None = None
) -> list[TableSource]:
    """Return the tables of an entry; the files of a pattern or of a folder are in natural order."""
    sources, folder = [], folder.absolute()
    for number, part in enumerate(files):
        if not isinstance(part, (str, os.PathLike)):
            sources.append(TableSource(part, f"frame {number}", header, pairs))
            continue
        for one in find_files(local_path("files", part), folder):
            keys = dict(name.split("=", 1) for name in Path(one).parts[:-1] if "=" in name) if "=" in one else {}
            path = folder / one
            sources.append(TableSource(path, str(path), header, pairs, keys))
    for source in sources:
        source.memory = memory
    for key in {key for source in sources for key in source.keys}:
        kind = key_type([source.keys[key] for source in sources if key in source.keys])
        for source in sources:
            source.key_types[key] = kind
    # A TFRecord file without records has no columns either. Shards without records are common.
    return [source for source in sources if not source.is_empty()] or sources


def find_files(text: str, folder: Path) -> list[str]:
    """Return the files for a path or a pattern; a folder stands for the Parquet files in it."""
    found = [text]
    if glob.has_magic(text) and not (folder / text).exists():
        found = glob.glob(text, root_dir=folder, recursive=True)
    paths = {path for path in found if os.path.isfile(os.path.join(folder, path))}
    for path in found:
        # A pattern such as `**` also matches folders on the way to files; these are skipped.
        if path not in paths and (folder / path).is_dir() and (path == text or path.lower().endswith(PARQUET)):
            # Names that begin with _ are metadata of Spark and others, or unfinished files.
            inside = glob.glob("**", root_dir=folder / path, recursive=True)
            inside = [one for one in inside if one.lower().endswith(PARQUET) and not re.search(r"(^|[/\\])_", one)]
            paths |= {file for one in inside if (folder / (file := os.path.join(path, one))).is_file()}
    if not paths and (folder / text).is_dir():
        raise FileNotFoundError(
            f"{folder / text} is a folder without Parquet files; write a pattern, such as {text.rstrip('/')}/*.csv"
        )
    if not paths:
        raise FileNotFoundError(f"there is no file {folder / text}; paths are relative to {folder.resolve()}")
    return sorted(paths, key=natural_order)


def key_type(values: Sequence[str]) -> Any:
    """Return the type of values in the names of folders: integers, dates or strings."""
    pa = arrow()
    for pattern, arrow_type in ((r"0|-?[1-9]\d{0,17}", pa.int64()), (DATE, pa.date32())):
        if all(re.fullmatch(pattern, value) for value in values):
            return arrow_type
    return pa.large_string()
