"""Arrays in `.npy` files of as many rows as come."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from graphfeed.storage.datasets import write_rows


class GrowingArray:
    """Writes a `.npy` file without knowing its length. The file is complete when it is closed.

    Args:
        path: The path of the file, which is replaced if it is there.
        dtype: The dtype of the rows.
        row: The shape of a row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     array = GrowingArray(Path(folder) / "a.npy", np.int64)
        ...     array.append(np.array([1, 2]))
        ...     array.append(np.array([3]))
        ...     array.close()
        ...     np.load(Path(folder) / "a.npy").tolist()
        [1, 2, 3]
    """

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.row, self.rows = path, np.dtype(dtype), row, 0
        self.file = path.open("wb")
        self.start = self._write_header()

    def _write_header(self) -> int:
        """Write the header for the rows so far, and return where it ends: NumPy leaves room for more digits."""
        self.file.seek(0)
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.row)}
        np.lib.format.write_array_header_1_0(self.file, header)
        return self.file.tell()

    def append(self, values: NDArray[Any]) -> None:
        """Write the next rows.

        Raises:
            ValueError: They have another shape, or a dtype that this one can't hold.
        """
        # A wider type would wrap around in a narrower one. Floats only lose digits.
        both = values.dtype.kind == self.dtype.kind == "f"
        if values.shape[1:] != self.row or not np.can_cast(values.dtype, self.dtype, "same_kind" if both else "safe"):
            raise ValueError(
                f"{self.path.stem}: rows are {values.dtype} of shape {values.shape[1:]}, but the first ones "
                f"{self.dtype} of shape {self.row}"
            )
        write_rows(self.file, values.astype(self.dtype, copy=False))
        self.rows += len(values)

    def close(self) -> None:
        """Write the number of rows into the file, and bring it to the disk. Does nothing the second time."""
        if not self.file.closed:
            with self.file:
                if self._write_header() != self.start:
                    raise ValueError(f"{self.path} has {self.rows} rows, more than its header has room for")
                self.file.flush()
                os.fsync(self.file.fileno())


class GrowingArrays:
    """Arrays in the files of a folder, made when their first rows come. They are completed if no error leaves `with`.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, GrowingArray] = {}

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Write the next rows of an array, in the byte order of the machine."""
        if name not in self.arrays:
            dtype = values.dtype.newbyteorder("=")
            self.arrays[name] = GrowingArray(self.folder / f"{name}.npy", dtype, values.shape[1:])
        self.arrays[name].append(values)

    def __enter__(self) -> Self:
        """Return the arrays."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Complete all files, or close them as they are."""
        for array in self.arrays.values():
            array.close() if kind is None else array.file.close()
