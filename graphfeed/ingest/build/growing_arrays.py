"""Arrays in `.npy` files of as many rows as come."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.storage.datasets import ArrayWriter


@dataclass(frozen=True)
class Place:
    """Where some rows of arrays belong in the files of all rows.

    Args:
        prefix: What the paths of the files begin with.
        num_rows: How many rows there are.
        first_row: The first one of these.
    """

    prefix: Path
    num_rows: int
    first_row: int = 0

    def path(self, name: str) -> Path:
        """Return the path of an array's file."""
        return self.prefix.with_name(f"{self.prefix.name}_{name}.npy")


class GrowingArrays(ExitStack):
    """Arrays in the files of a folder, made when their first rows come. They are completed if no error leaves `with`.

    Args:
        folder: Where the files are. Those that are there already are replaced.
        prefix: What the names of the files begin with.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with GrowingArrays(Path(folder)) as arrays:
        ...         arrays.append("a", np.array([1, 2]))
        ...         arrays.append("a", np.array([3]))
        ...     np.load(Path(folder) / "a.npy").tolist()
        [1, 2, 3]
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        super().__init__()
        self.folder, self.prefix = folder, prefix
        self.arrays: dict[str, ArrayWriter] = {}

    def append(self, name: str, values: NDArray[Any], place: Place | None = None) -> None:
        """Write the next rows of an array, in the byte order of the machine.

        Args:
            name: The name of the array.
            values: Its rows.
            place: Where the rows belong, if the file is a whole one, which others write, too.

        Raises:
            ValueError: They have another shape than the first ones, or a dtype that the first ones' can't hold.
        """
        row = values.shape[1:]
        if place is not None and not self.folder.exists():
            raise FileNotFoundError(f"{self.folder} is gone: another run writes {place.path(name)} now")
        if name not in self.arrays:
            path, dtype = self.folder / f"{self.prefix}{name}.npy", values.dtype.newbyteorder("=")
            if place is None:
                writer = ArrayWriter(path, (None, *row), dtype)
            else:
                writer = ArrayWriter(place.path(name), (place.num_rows, *row), dtype, place.first_row)
            self.arrays[name] = self.enter_context(writer)
        writer = self.arrays[name]
        # A wider type would wrap around in a narrower one. Floats only lose digits.
        both = values.dtype.kind == writer.dtype.kind == "f"
        if row != writer.shape[1:] or not np.can_cast(values.dtype, writer.dtype, "same_kind" if both else "safe"):
            raise ValueError(
                f"{name}: rows are {values.dtype} of shape {row}, but the first ones {writer.dtype} of shape "
                f"{writer.shape[1:]}"
            )
        writer.append(values)
