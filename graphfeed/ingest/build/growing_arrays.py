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
    """Where some rows of arrays belong in the files of all rows."""

    prefix: Path  # what the paths of the files begin with
    num_rows: int  # how many the files have
    first_row: int = 0  # the first one of these

    def path(self, name: str) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}_{name}.npy")


class GrowingArrays(ExitStack):
    """Arrays in the files of a folder, made when their first rows come, and completed if no error leaves `with`."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        super().__init__()
        self.folder, self.prefix = folder, prefix
        self.arrays: dict[str, ArrayWriter] = {}

    def append(self, name: str, values: NDArray[Any], place: Place | None = None) -> None:
        """Write the next rows of an array, in the byte order of the machine."""
        row = values.shape[1:]
        if place is not None and not self.folder.exists():
            raise FileNotFoundError(f"{self.folder} is gone: another run writes {place.path(name)} now")
        if name not in self.arrays:
            path, dtype = self.folder / f"{self.prefix}{name}.npy", values.dtype.newbyteorder("=")
            if place is None:
                writer = ArrayWriter(path, (None, *row), dtype)
            else:
                # The file is a whole one, which others write, too.
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
