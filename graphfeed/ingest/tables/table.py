"""Tables in files and in memory as Arrow batches: Parquet, Arrow, CSV, NDJSON, NumPy, TFRecord, and data frames."""

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tables.arrow_types import arrow, as_plain, plain_type
from graphfeed.ingest.tables.ndjson import ndjson_batches, ndjson_schema
from graphfeed.ingest.tables.text_lines import EdgeListText
from graphfeed.ingest.tfrecord.tfrecord_table import find_columns, has_records, read_columns
from graphfeed.ops.arguments import brief
from graphfeed.ops.process import regular_file
from graphfeed.storage.memory import map_npy

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
EDGE_LISTS = (".txt", ".edges", ".edgelist")
CSV = {".csv": ",", ".tsv": "\t", **dict.fromkeys(EDGE_LISTS, "\t")}
"""What is between two values."""
NDJSON = (".ndjson", ".jsonl")
NUMPY = (".npy", ".npz")
TFRECORD = (".tfrecord", ".tfrecords")
SUFFIXES = (*PARQUET, *ARROW, *CSV, *NDJSON, *NUMPY, *TFRECORD)
COMPRESSED = (*CSV, *NDJSON, *TFRECORD)
"""What may have `.gz` behind it."""
SHARD = re.compile(r"(\.tfrecords?)-\d+-of-\d+")
"""What the names of a TFRecord file's shards have behind the suffix."""
BLOCK_BYTES = 1 << 22
"""How much text is read at a time."""
COLUMN_BYTES = 1 << 20
"""How much of a column of a Parquet file is read at a time."""
NULLS = [""]
"""What counts as missing in CSV files. A node may well be called "null" or "NA"."""
MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""What texts say for a number that is missing."""

Batches: TypeAlias = Iterator[Any]
OnInvalid: TypeAlias = Callable[[str], None]
"""Is called with the text of a line that has too few or too many values."""


@dataclass(frozen=True)
class TableSource:
    """A table: a file, or a frame in memory."""

    source: Any  # a path or a frame
    name: str  # what errors call it
    header: bool = True  # whether the first row of a CSV file has the names of the columns
    pairs: bool = False  # whether an array of shape (2, N) has one row per column, as edge lists have

    @property
    def suffix(self) -> str:
        return suffix_of(self.source) if isinstance(self.source, Path) else ""

    @property
    def has_header(self) -> bool:
        return self.header and self.suffix not in EDGE_LISTS

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise what goes wrong with a damaged file as an error that names it."""
        try:
            yield
        except (FileNotFoundError, ImportError):
            raise
        # Damaged files make the libraries that read them raise almost anything.
        except Exception as error:
            text = str(error).strip().removeprefix(f"{self.name}: ") or type(error).__name__
            if "straddling object" in text:
                text = f"a line, or a value in quotes, is longer than {BLOCK_BYTES} bytes; a quote may have no end"
            raise ValueError(f"{self.name} can't be read as {self.suffix or 'a table'}: {text}") from error

    def is_empty(self) -> bool:
        if self.suffix not in TFRECORD:
            return False  # others say which columns they have
        with self.reading():
            return not has_records(self.source)

    def schema(self) -> Any:
        return self._schema  # read once; of CSV files as the first rows have it

    @cached_property
    def _schema(self) -> Any:
        with self.reading():
            schema = self._read_schema()
            schema = arrow().schema([column.with_type(plain_type(column.type)) for column in schema])
        if len(set(schema.names)) < len(schema.names):
            double = next(name for name in schema.names if schema.names.count(name) > 1)
            raise ValueError(f"{self.name} has two columns {double!r}; rename one")
        return schema

    def _read_schema(self) -> Any:
        if self.suffix in PARQUET:
            return self._parquet[0]
        if self.suffix in ARROW:
            return open_ipc(self.source).schema
        if self.suffix in CSV:
            # Lines with too few or too many values are errors where rows are read, and don't matter here.
            # NA among integers makes no texts of them. NaN isn't missing: it makes floats of them.
            missing = [text for text in MISSING_TEXTS if text.lower() != "nan"]
            with self._open_csv(lambda _: "skip", missing) as reader:
                return reader.schema
        if self.suffix in NDJSON:
            return ndjson_schema(self.source, BLOCK_BYTES)
        if self.suffix in NUMPY:
            return next(slices(self._arrays(), None, 1)).schema
        if self.suffix in TFRECORD:
            return self._tfrecord_schema()
        return as_table(self.source).schema

    @cached_property
    def _parquet(self) -> tuple[Any, int]:
        """The schema of a Parquet file, and how many rows it has."""
        with arrow("parquet").ParquetFile(self.source) as file:
            return file.schema_arrow, int(file.metadata.num_rows)

    def num_rows(self) -> int | None:
        """Return the number of rows, if that is known without reading them."""
        with self.reading():
            if self.suffix in PARQUET:
                return self._parquet[1]
            if self.suffix in NUMPY:
                return len(next(iter(self._arrays().values())))
            return None if self.suffix else int(as_table(self.source).num_rows)

    def batches(self, columns: Sequence[str], most_rows: int, on_invalid: OnInvalid | None = None) -> Batches:
        """Yield batches of some columns, in the order of the rows. No batch is empty."""
        schema = self.schema()
        for name in columns:
            if name not in schema.names:
                raise ValueError(f"{self.name} has no column {name!r}; it has {brief(list(schema.names))}")
        # Lines that `on_invalid` is called with are left out. Without it, they are an error.
        with self.reading():
            for batch in self._batches(list(dict.fromkeys(columns)), most_rows, schema, on_invalid):
                batch.validate(full=True)  # so that what is damaged is an error, rather than read from anywhere
                batch = arrow().record_batch(list(map(as_plain, batch.columns)), batch.schema.names)
                for start in range(0, batch.num_rows, most_rows):
                    yield batch.slice(start, most_rows)

    def _batches(self, columns: list[str], most_rows: int, schema: Any, on_invalid: OnInvalid | None) -> Batches:
        if self.suffix in PARQUET:
            parquet = arrow("parquet")
            # Read in parts, a page takes the memory that it claims to need; read as a whole, what the file has.
            size = COLUMN_BYTES if self.source.stat().st_size > COLUMN_BYTES else 0
            with parquet.ParquetFile(
                self.source, page_checksum_verification=True, pre_buffer=False, buffer_size=size
            ) as file:
                yield from file.iter_batches(most_rows, columns=columns)
        elif self.suffix in ARROW:
            for batch in ipc_batches(self.source):
                yield batch.select(columns)
        elif self.suffix in CSV:
            yield from self._csv_batches(columns, schema.names, on_invalid)
        elif self.suffix in NDJSON:
            yield from ndjson_batches(self.source, columns, schema, BLOCK_BYTES)
        elif self.suffix in NUMPY:
            yield from slices(self._arrays(), columns, most_rows)
        elif self.suffix in TFRECORD:
            texts = [name for name in columns if arrow().types.is_large_string(schema.field(name).type)]
            numbers = [name for name in columns if name not in texts]
            for rows in read_columns(self.source, numbers, texts):
                arrays = {name: (as_texts(*rows[name]) if name in texts else as_arrow(rows[name])) for name in columns}
                yield arrow().record_batch(arrays)
        else:
            yield from as_table(self.source).select(columns).to_batches(max_chunksize=most_rows)

    def _open_csv(
        self, on_invalid: Any, nulls: Sequence[str], columns: Sequence[str] = (), names: Sequence[str] = (), **read: Any
    ) -> Any:
        """Open a CSV file for some of its columns; by default for all."""
        csv = arrow("csv")
        parse = csv.ParseOptions(
            delimiter=CSV[self.suffix],
            newlines_in_values=True,  # otherwise a block might end inside of a value in quotes
            ignore_empty_lines=len(names) != 1,  # in a table of one column they are rows whose value is missing
            invalid_row_handler=on_invalid,  # None makes an error of lines with the wrong number of values
        )
        convert = csv.ConvertOptions(
            strings_can_be_null=True,
            null_values=nulls,
            include_columns=columns,
            column_types=dict.fromkeys(names, arrow().string()),  # if the names are known, values are read as texts
        )
        header = self.has_header
        if not header and not names:
            # Opened once to count the columns, whose names are 0, 1, 2, ...
            unnamed = csv.ReadOptions(autogenerate_column_names=True, block_size=BLOCK_BYTES)
            with csv.open_csv(self._text(), parse_options=parse, read_options=unnamed) as reader:
                names = [str(number) for number in range(len(reader.schema.names))]
        options = csv.ReadOptions(block_size=BLOCK_BYTES, column_names=None if header else names, **read)
        return csv.open_csv(self._text(), convert_options=convert, parse_options=parse, read_options=options)

    def _csv_batches(self, columns: list[str], names: list[str], on_invalid: OnInvalid | None) -> Batches:
        # As texts, so that a value that is no number is named with its row.
        handler = None if on_invalid is None else lambda row: (on_invalid(row.text), "skip")[1]
        try:
            with self._open_csv(handler, NULLS, columns, names) as reader:
                yield from reader
        except arrow().ArrowInvalid as error:
            raise (self._first_invalid(columns, names, error) if on_invalid is None else error) from error

    def _first_invalid(self, columns: list[str], names: list[str], error: Exception) -> Exception:
        """Return an error that names the first line with the wrong number of values, if that is what went wrong."""
        invalid: list[Any] = []

        def note(row: Any) -> str:
            invalid.append(row)
            return "error"

        # Rows have numbers only if one thread reads them.
        with suppress(arrow().ArrowInvalid), self._open_csv(note, NULLS, columns, names, use_threads=False) as reader:
            for _ in reader:
                pass
        if not invalid or invalid[0].number is None:
            return error
        row = invalid[0]
        return ValueError(
            f"row {row.number - 1 - self.has_header} has {row.actual_columns} values instead of "
            f"{row.expected_columns}: {brief(row.text)}"
        )

    def _text(self) -> Any:
        return EdgeListText(self.source, BLOCK_BYTES) if self.suffix in EDGE_LISTS else self.source

    def _tfrecord_schema(self) -> Any:
        pa = arrow()
        kinds = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.large_string()}
        columns = find_columns(self.source).items()
        return pa.schema(
            [(name, kinds[kind] if count == 1 else pa.list_(kinds[kind], count)) for name, (kind, count) in columns]
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns of NumPy files; a `.npy` file is mapped."""
        if self.suffix == ".npy":
            array = map_npy(self.source)
            if self.pairs and array.ndim == 2 and len(array) == 2:
                array = array.T
            if array.ndim not in {1, 2}:
                raise ValueError(f"it must have one or two dimensions, but has shape {array.shape}")
            columns = array[:, None] if array.ndim == 1 else array
            return {str(number): columns[:, number] for number in range(columns.shape[1])}
        # Opened here, because NumPy leaves the file of a damaged archive open.
        with open(self.source, "rb", opener=regular_file) as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        lengths = {name: len(array) if array.ndim else None for name, array in arrays.items()}
        if not arrays or len(set(lengths.values())) > 1 or None in lengths.values():
            raise ValueError(f"its arrays must have one row count, but have {brief(lengths)}")
        return arrays


def suffix_of(path: Path) -> str:
    """Return the suffix of a path that says its format."""
    suffixes = Path(SHARD.sub(r"\1", path.name.lower())).suffixes
    if suffixes and suffixes[-1] == ".gz" and suffixes[-2:-1] and suffixes[-2] in COMPRESSED:
        return suffixes[-2]
    if suffixes and suffixes[-1] in SUFFIXES:
        return suffixes[-1]
    raise ValueError(
        f"{path} has no suffix of a known format; known are {', '.join(SUFFIXES)}, and .gz behind those of texts and "
        "TFRecords"
    )


def as_table(frame: Any) -> Any:
    """Return a data frame, a dict of arrays, a list of rows, or something of Arrow as an Arrow table."""
    if isinstance(frame, arrow().Table):
        return frame
    if isinstance(frame, Mapping):
        return arrow().Table.from_batches(slices({key: np.asarray(part) for key, part in frame.items()}, None, 1 << 20))
    if isinstance(frame, list):
        names = dict.fromkeys(name for row in frame for name in row)
        return arrow().table({str(name): [row.get(name) for row in frame] for name in names})
    if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
        return arrow().table(frame)
    if hasattr(frame, "__dataframe__"):
        return arrow("interchange").from_dataframe(frame)
    raise TypeError(f"a table must be a path, a data frame, an Arrow table or a dict of arrays, but is {brief(frame)}")


def open_ipc(path: Path) -> Any:
    """Open an Arrow file: the format for random access, or the one for streams."""
    pa, ipc = arrow(), arrow("ipc")
    file = pa.memory_map(str(path))
    try:
        return ipc.open_file(file)
    except pa.ArrowInvalid:
        # These bytes begin a file for random access, which is damaged then.
        if bytes(file.read_at(6, 0)) == b"ARROW1":
            raise
        file.seek(0)
        return ipc.open_stream(file)


def ipc_batches(path: Path) -> Batches:
    reader = open_ipc(path)
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def slices(arrays: Mapping[str, NDArray[Any]], columns: Sequence[str] | None, most_rows: int) -> Batches:
    """Yield batches of some of the arrays; at least one if there are no rows."""
    pa = arrow()
    chosen = {str(name): arrays[name] for name in (arrays if columns is None else columns)}
    rows = len(next(iter(chosen.values()))) if chosen else 0
    for start in range(0, max(rows, 1), most_rows):
        part = {name: as_arrow(np.asarray(array[start : start + most_rows])) for name, array in chosen.items()}
        yield pa.record_batch(part) if part else pa.record_batch({"": []})


def as_arrow(array: NDArray[Any]) -> Any:
    pa = arrow()
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if native.ndim == 1:
        return pa.array(native)
    if native.ndim != 2 or native.shape[1] == 0:
        raise ValueError(f"an array of shape {array.shape} can't be a column; its rows must be numbers or vectors")
    return pa.FixedSizeListArray.from_arrays(pa.array(native.reshape(-1)), native.shape[1])


def as_texts(offsets: NDArray[np.int64], values: NDArray[np.uint8]) -> Any:
    pa = arrow()
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(values))


def find_sources(files: Sequence[Any], folder: Path, *, header: bool, pairs: bool) -> list[TableSource]:
    """Return the tables of an entry; patterns stand for the files that they match, in alphabetical order."""
    sources, folder = [], folder.absolute()  # tasks read them in processes with other working folders
    for number, part in enumerate(files):
        if not isinstance(part, (str, os.PathLike)):
            sources.append(TableSource(as_table(part), f"frame {number}", header, pairs))
            continue
        text = os.fspath(part)
        paths = [folder / text]
        if glob.has_magic(text) and not paths[0].is_file():
            paths = sorted(folder / found for found in glob.glob(text, root_dir=folder, recursive=True))
            paths = [path for path in paths if path.is_file()]
        if not paths or not all(path.is_file() for path in paths):
            raise FileNotFoundError(f"there is no file {folder / text}; paths begin in {folder.resolve()}")
        for path in paths:
            suffix_of(path)
            sources.append(TableSource(path, str(path), header, pairs))
    # A TFRecord file without records doesn't even say which columns it has. Shards without records are common.
    return [source for source in sources if not source.is_empty()] or sources
