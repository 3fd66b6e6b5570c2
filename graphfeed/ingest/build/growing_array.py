"""Arrays in `.npy` files of as many rows as come; where they stand can be noted, to go on from there."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class GrowingArray:
    """Writes a `.npy` file without knowing its length. The file is complete when it is closed.

    Args:
        path: The path of the file.
        dtype: The dtype of the rows.
        row: The shape of a row.
        rows: How many rows of an existing file to keep, and to go on behind. 0 begins a new file.

    Raises:
        ValueError: The existing file has fewer rows.

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

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...] = (), rows: int = 0) -> None:
        self.path, self.dtype, self.row, self.rows = path, np.dtype(dtype), row, rows
        self.file = path.open("r+b" if rows else "wb")
        self.start = self._write_header()
        self.file.flush()
        end = self.start + rows * self.row_bytes
        if os.fstat(self.file.fileno()).st_size < end:
            self.file.close()
            raise ValueError(f"{path} should have {rows} rows, but is shorter; remove it and begin anew")
        self.file.truncate(end)
        self.file.seek(end)

    @property
    def row_bytes(self) -> int:
        """The number of bytes per row."""
        return self.dtype.itemsize * int(np.prod(self.row, dtype=np.int64))

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
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self.file)
        self.rows += len(values)

    def sync(self) -> dict[str, Any]:
        """Bring all rows to the disk, and return what opens the file again as it is now."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return {"dtype": self.dtype.str, "row": list(self.row), "rows": self.rows}

    def close(self) -> None:
        """Write the number of rows into the file, and bring it to the disk. Does nothing the second time."""
        if not self.file.closed:
            with self.file:
                if self._write_header() != self.start:
                    raise ValueError(f"{self.path} has {self.rows} rows, more than its header has room for")
                self.file.flush()
                os.fsync(self.file.fileno())


class GrowingArrays:
    """Arrays in the files of a folder, made when their first rows come.

    Args:
        folder: Where the files are.
        state: What `sync` returned, to go on from there.
    """

    def __init__(self, folder: Path, state: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.arrays: dict[str, GrowingArray] = {}
        try:
            for name, own in (state or {}).items():
                path, dtype = folder / f"{name}.npy", np.dtype(own["dtype"])
                self.arrays[name] = GrowingArray(path, dtype, tuple(own["row"]), own["rows"])
        except BaseException:
            self.abandon()
            raise

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Write the next rows of an array, in the byte order of the machine."""
        if name not in self.arrays:
            self.arrays[name] = GrowingArray(
                self.folder / f"{name}.npy", values.dtype.newbyteorder("="), values.shape[1:]
            )
        self.arrays[name].append(values)

    def sync(self) -> dict[str, Any]:
        """Bring all rows to the disk, and return what opens the files again as they are now."""
        return {name: array.sync() for name, array in self.arrays.items()}

    def close(self) -> None:
        """Complete all files."""
        for array in self.arrays.values():
            array.close()

    def abandon(self) -> None:
        """Close the files as they are, without completing them."""
        for array in self.arrays.values():
            array.file.close()
