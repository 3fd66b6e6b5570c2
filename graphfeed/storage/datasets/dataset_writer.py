"""Writes the folder of a data set: arrays, then the metadata with the checksums of the arrays, then its final name."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from numpy.typing import DTypeLike, NDArray

from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage.datasets.array_files import ArrayWriter, checksum, write_array, write_text
from graphfeed.storage.datasets.folder_writing import SCRATCH, new_folder
from graphfeed.storage.datasets.metadata import FILE_NAME, stay_inside

PROCESSED = "graphfeed"
"""Folder of the arrays in a data set."""
GRAPH_FOLDER = "graph"
COLUMN_FILES = ("csc_indptr.npy", "indices.npy", "type_per_edge.npy")
"""Files of a graph that are checked. The last one exists if the graph has types."""
EDGE_IDS = "edge_id.npy"
"""File of the positions that sampled edges have in the lists of their types."""


class RowFiles(ExitStack):
    """Array files in a folder that grow by rows, and are completed if `with` ends without an error."""

    def __init__(self, folder: Path, prefix: str) -> None:
        super().__init__()
        self.folder, self.prefix = folder, prefix
        self.writers: dict[str, ArrayWriter] = {}

    def file(self, name: str) -> str:
        """Return the name of the file of an array."""
        return f"{self.prefix}{name}.npy"

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Write the next rows of an array, in native byte order."""
        if name not in self.writers:
            dtype = values.dtype.newbyteorder("=")
            writer = ArrayWriter(self.folder / self.file(name), (None, *values.shape[1:]), dtype)
            self.writers[name] = self.enter_context(writer)
        self.writers[name].append(values)


class DatasetWriter:
    """Writes the files of a data set to a folder that gets its final name when `open` ends without an error.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> folder = Path(tempfile.mkdtemp()) / "made"
        >>> with DatasetWriter.open(folder) as writer:
        ...     writer.finish({"rows": writer.write("rows", np.arange(3))})
        >>> sorted(path.name for path in folder.iterdir())
        ['metadata.yaml', 'rows_0.npy']
    """

    def __init__(self, unfinished: Path, inside: str, prefix: str) -> None:
        self.unfinished, self.folder, self.prefix, self.count = unfinished, unfinished / inside, prefix, 0
        self.folder.mkdir(exist_ok=True)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, inside: str = "", prefix: str = "", **options: Any) -> Iterator[Self]:
        """Yield a writer of a new folder.

        Args:
            inside: The subfolder of the arrays and the metadata.
            prefix: The path of that folder from the folder of the data set, by which the metadata names files.
            options: Those of `new_folder`. With `resume`, the folder is kept after an error, under another name.
        """
        with new_folder(folder, **options) as unfinished:
            yield cls(unfinished, inside, prefix)

    @property
    def graph(self) -> Path:
        """The folder of the graph."""
        folder = self.folder / GRAPH_FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def path(self, file: str) -> str:
        """Return the path of a file for the metadata."""
        return f"{self.prefix}/{file}" if self.prefix else file

    def write(self, name: str, array: NDArray[Any], dtype: DTypeLike | None = None) -> str:
        """Write an array to a file with a new number, and return its path for the metadata."""
        file = f"{name}_{self.count}.npy"
        self.count += 1
        write_array(self.folder / file, array, dtype)
        return self.path(file)

    def rows(self, prefix: str) -> RowFiles:
        """Return a context in which files grow; their names begin with `prefix`."""
        return RowFiles(self.folder, prefix)

    def remove_others(self, metadata: Mapping[str, Any]) -> None:
        """Remove the arrays that the metadata does not name, such as those of an abandoned specification."""
        typed = metadata["graph_topology"]["node_type_offset"] is not None
        named = {*(Path(text).name for text in texts_in(metadata)), *COLUMN_FILES[: 3 if typed else 2]}
        for path in self.arrays():
            if path.name not in named:
                path.unlink()

    def arrays(self) -> list[Path]:
        """Return the files of all arrays."""
        scratch = self.folder / SCRATCH
        return sorted(path for path in self.folder.rglob("*.npy") if scratch not in path.parents)

    def finish(
        self,
        metadata: Mapping[str, Any],
        file: str = FILE_NAME,
        *,
        checksums: Mapping[str, str] | None = None,
        progress: Callable[..., ProgressBar] = progress_bar,
    ) -> None:
        """Write the metadata as YAML or JSON, with the checksums of all arrays, which are read here if not given."""
        if checksums is None:
            checksums = checksums_of(self.folder, self.arrays(), progress)
        content = {**metadata, "checksums": checksums}
        if file.endswith(".json"):
            text = json.dumps(content, indent=1) + "\n"
        else:
            import yaml  # noqa: PLC0415

            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        write_text(self.folder / file, text)


def checksums_of(
    folder: Path, files: Collection[Path], progress: Callable[..., ProgressBar] = progress_bar
) -> dict[str, str]:
    """Return the checksums of files by their paths in a folder."""
    with progress("computing checksums", sum(path.stat().st_size for path in files), unit="B") as bar:
        return {path.relative_to(folder).as_posix(): checksum(path, bar) for path in files}


def damaged_files(folder: Path, known: Mapping[str, str]) -> list[str]:
    """Return the files of a folder that are missing or do not have their checksums."""
    paths = {name: stay_inside(folder, name, "checksums") for name in known}
    with progress_bar("verifying files", None, "B") as bar:
        return [name for name in known if not paths[name].is_file() or checksum(paths[name], bar) != known[name]]


def texts_in(value: Any) -> Iterator[str]:
    """Yield all strings in nested lists and dicts, without the keys of dicts."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield from texts_in(part)
