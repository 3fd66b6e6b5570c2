"""How the features of a record lie in a buffer of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.memory import align

KINDS = {"bytes": 1, "float": 2, "int64": 3}
"""The field of each kind of list in a `tf.train.Feature`."""
PLACES = "places"
"""Stands for bytes of any length, of which only the places are read."""
NUMBERS = KINDS | {PLACES: 4}
"""How kernels know each kind."""
DTYPES = {"bytes": torch.uint8, "float": torch.float32, "int64": torch.int64, PLACES: torch.int64}
ALIGNMENT = 8
"""Each feature begins at a multiple of this."""


@dataclass(frozen=True)
class ExampleLayout:
    """The features of a record: their names, and how many values of which kind and size each record has.

    In a buffer for a number of rows, all rows of the first feature come first, then those of the second one.

    Example:
        >>> layout = ExampleLayout(["src", "name"], ["int64", "bytes"], counts=[1, 1], widths=[8, 5])
        >>> layout.row_bytes, layout.buffer_bytes(rows=3)
        (13, 40)
        >>> layout.columns(torch.zeros(40, dtype=torch.uint8), rows=3)["name"].shape
        torch.Size([3, 1, 5])
    """

    names: Sequence[str]
    kinds: Sequence[str]
    """"int64", "float" or "bytes"; or "places" for bytes of any length: where each begins in the data, and its size."""
    counts: Sequence[int]
    """Values in each record."""
    widths: Sequence[int]
    """Bytes of each value: 8 of int64, 4 of float, 16 of places."""
    name_bytes: NDArray[np.uint8] = field(init=False, repr=False)
    name_starts: NDArray[np.int64] = field(init=False, repr=False)
    kind_numbers: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        encoded = [name.encode(errors="surrogateescape") for name in self.names]
        starts = [0, *accumulate(len(name) for name in encoded)]
        object.__setattr__(self, "name_bytes", np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8))
        object.__setattr__(self, "name_starts", np.array(starts, dtype=np.int64))
        object.__setattr__(self, "kind_numbers", np.array([NUMBERS[kind] for kind in self.kinds], dtype=np.int64))

    @property
    def row_bytes(self) -> int:
        """What a row takes."""
        return sum(count * width for count, width in zip(self.counts, self.widths, strict=True))

    def bases(self, rows: int) -> list[int]:
        """Return where each feature begins in a buffer, and where the last one ends."""
        sizes = (align(rows * count * width, ALIGNMENT) for count, width in zip(self.counts, self.widths, strict=True))
        return [0, *accumulate(sizes)]

    def buffer_bytes(self, rows: int) -> int:
        """Return the size of a buffer."""
        return max(self.bases(rows)[-1], ALIGNMENT)

    def columns(self, buffer: torch.Tensor, rows: int) -> dict[str, torch.Tensor]:
        """Return views of a buffer by feature.

        Numbers have shape (rows, count), bytes (rows, count, width), and places (rows, count, 2).
        """
        columns = {}
        for name, kind, count, width, base in zip(
            self.names, self.kinds, self.counts, self.widths, self.bases(rows), strict=False
        ):
            flat = buffer[base : base + rows * count * width].view(DTYPES[kind])
            shape = {"bytes": (rows, count, width), PLACES: (rows, count, 2)}.get(kind, (rows, count))
            columns[name] = flat.reshape(shape)
        return columns

    def kernel_arguments(self, rows: int) -> tuple[NDArray[np.uint8] | NDArray[np.int64], ...]:
        """Return what kernels ask of a layout, in their order."""
        numbers = (np.array(values, dtype=np.int64) for values in (self.counts, self.widths, self.bases(rows)[:-1]))
        return (self.name_bytes, self.name_starts, self.kind_numbers, *numbers)
