"""Arrays in files: mapped for reading, written in blocks, and synced to the disk when they are closed."""

import codecs
import io
import math
import os
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from graphfeed.ops.arguments import kind_of
from graphfeed.ops.process import ProgressBar, current_limits, progress_bar, regular_file
from graphfeed.storage.memory.outside_files import BROKEN, check_saved_numbers, map_npy, read_array, read_npy


def open_array(path: Path, format: str, key: str) -> NDArray[Any]:
    """Map an array in a file, or read one that can't be mapped. Only tensors are unpickled, no other objects."""
    check_file(path, key)
    try:
        if format == "numpy":
            array = map_npy(path)
        else:
            # Only the format that torch.save has written since torch 1.6 can be mapped: a zip archive.
            with path.open("rb") as file:
                mapped = file.read(4) == b"PK\x03\x04"
            try:
                array = torch.load(str(path), weights_only=True, mmap=mapped, map_location="cpu")
            except pickle.UnpicklingError:
                # The file has a NumPy array, which torch doesn't read without unpickling NumPy's functions.
                array = read_array(path)
    except BROKEN as error:
        raise ValueError(f"{key}: {path} can't be read as {format} without unpickling objects: {error}") from error
    if isinstance(array, torch.Tensor):
        if array.dtype == torch.bfloat16:
            raise ValueError(f"{key}: {path} is bfloat16, which .npy files can't hold; save it as float16 or float32")
        array = array.detach().numpy()
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{key}: {path} must hold one {format} array, but holds {kind_of(array)}")
    check_saved_numbers(f"{key}: {path}", array.dtype)
    return array


def load_array(path: Path, key: str, *, mapped: bool) -> NDArray[Any]:
    """Read a `.npy` file, or map it such that writes don't reach the file. Objects in the array are a ValueError."""
    check_file(path, key)
    try:
        return read_npy(path, mapped=mapped)
    except (MemoryError, OSError) as error:
        raise ValueError(f"{key}: {path} can't be read: {error}; write it again") from error
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def check_file(path: Path, key: str) -> None:
    """Raise a FileNotFoundError unless a file named in the metadata exists."""
    if not path.is_file():
        raise FileNotFoundError(f"{key}: there is no file {path}; put it there, or correct the path")


def write_rows(file: BinaryIO, rows: NDArray[Any]) -> None:
    """Append the bytes of an array to a file. NumPy's `tofile` doesn't report why it could not write all of them."""
    file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)


class ArrayWriter:
    """Writes a `.npy` file in blocks of rows. The file is synced to the disk when it is closed.

    An existing file is replaced. None in `shape` allows any number of rows. Rows are converted to the dtype. `first` is
    the first row to write, if other writers of the file write other rows of the same array. Then existing rows are
    kept, and any number of rows may be written.
    """

    def __init__(self, path: Path, shape: Sequence[int | None], dtype: DTypeLike, first: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.path, self.shape, self.rows, self.shared = path, tuple(shape), 0, first is not None
        # Several tasks write to one file concurrently, each from its first row, so none may truncate it.
        if self.shared:
            path.touch()
        self.file = path.open("r+b" if self.shared else "wb")
        self.begin = self._write_header(shape[0] or 0)
        if first is not None:
            row_bytes = self.dtype.itemsize * math.prod(part or 0 for part in self.shape[1:])
            # Extend the file to its full size; unwritten rows read as zeros.
            self.file.truncate(self.begin + (shape[0] or 0) * row_bytes)
            self.file.seek(self.begin + first * row_bytes)

    def _write_header(self, rows: int) -> int:
        """Write the header, and return its end. NumPy reserves space for more digits of the number of rows."""
        self.file.seek(0)
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (rows, *self.shape[1:])}
        np.lib.format.write_array_header_1_0(self.file, header)
        return self.file.tell()

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        write_rows(self.file, rows.astype(self.dtype, copy=False))
        self.rows += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.file:
            # After a failure the file is left unfinished, to be removed with its folder.
            if kind is None:
                if self.shape[0] not in {None, self.rows} and not self.shared:
                    raise ValueError(f"{self.path} must get {self.shape[0]} rows, but got {self.rows}")
                # The number of rows is only known now.
                if self.shape[0] is None and self._write_header(self.rows) != self.begin:
                    raise ValueError(f"{self.path} has {self.rows} rows, too many digits for its header")
                self.file.flush()
                os.fsync(self.file.fileno())


def write_array(path: Path, array: NDArray[Any], dtype: DTypeLike | None = None) -> None:
    """Write an array, which may be mapped, to a `.npy` file in bounded memory."""
    step = max(current_limits().part_bytes * len(array) // max(array.nbytes, 1), 1)
    with (
        ArrayWriter(path, array.shape, array.dtype if dtype is None else dtype) as writer,
        progress_bar(f"writing {path.name}", len(array), "row") as progress,
    ):
        for start in range(0, len(array), step):
            writer.append(array[start : start + step])
            progress.update(min(step, len(array) - start))


def write_text(path: Path, text: str) -> None:
    """Write a text file and sync it to the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names of a folder's files to the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_csv_edges(path: Path, target: Path, key: str) -> NDArray[np.int64]:
    """Convert a CSV file of two integer columns into a binary file of pairs. Return them mapped, shape (2, edges)."""
    check_file(path, key)
    edges = 0
    with (
        open(path, "rb", opener=regular_file) as text,
        target.open("wb") as pairs,
        progress_bar(f"reading {path.name}", path.stat().st_size, "B") as progress,
    ):
        # Some spreadsheet programs start files with this mark. About three million edges are read per second.
        if text.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            text.seek(0)
        step = current_limits().part_bytes
        # A block ends at the end of a line.
        while block := text.read(step) + text.readline():
            progress.update(len(block))
            if not block.strip():
                continue
            try:
                part = np.loadtxt(io.BytesIO(block), dtype=np.int64, delimiter=",", comments=None, ndmin=2)
                if part.shape[1] != 2:
                    raise ValueError(f"there are {part.shape[1]} columns")
            except ValueError as error:
                raise ValueError(
                    f"{key}: {path} must have two columns of integers and no header, but after {edges} edges: {error}"
                ) from error
            write_rows(pairs, part)
            edges += len(part)
    # An empty file can't be mapped.
    if edges == 0:
        return np.empty((2, 0), dtype=np.int64)
    return np.memmap(target, dtype=np.int64, mode="r", shape=(edges, 2)).T


def checksum(path: Path, progress: ProgressBar | None = None) -> str:
    """Return the CRC-32 of a file in hexadecimal digits, and update a progress bar with its bytes."""
    value = 0
    with open(path, "rb", opener=regular_file) as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
            if progress is not None:
                progress.update(len(block))
    return f"{value:08x}"
