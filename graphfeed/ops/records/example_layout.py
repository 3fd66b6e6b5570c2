"""Layout of the features of records in a buffer of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.memory import align

KINDS = {"bytes": 1, "float": 2, "int64": 3}
"""Field number of each kind of list in a `tf.train.Feature`."""
PLACES = "places"
"""The kind for bytes of variable length, of which only the position and size are stored."""
NUMBERS = KINDS | {PLACES: 4}
"""Number of each kind in kernels."""
DTYPES = {"bytes": torch.uint8, "float": torch.float32, "int64": torch.int64, PLACES: torch.int64}
ALIGNMENT = 8
"""Alignment of each feature in the buffer, in bytes."""


@dataclass(frozen=True)
class ExampleLayout:
    """The features of records: their names, kinds, and the number and size of their values per record.

    A buffer has all rows of the first feature, then all rows of the second one, and so on.

    Example:
        >>> layout = ExampleLayout(["src", "name"], ["int64", "bytes"], counts=[1, 1], widths=[8, 5])
        >>> layout.row_bytes, layout.buffer_bytes(rows=3)
        (13, 40)
        >>> layout.columns(torch.zeros(40, dtype=torch.uint8), rows=3)["name"].shape
        torch.Size([3, 1, 5])
    """

    names: Sequence[str]
    kinds: Sequence[str]
    """"int64", "float" or "bytes"; or "places" for bytes of variable length, which stores their position and size."""
    counts: Sequence[int]
    """Number of values per record."""
    widths: Sequence[int]
    """Size of each value in bytes: 8 for int64, 4 for float, 16 for places."""
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
        """Size of a row in bytes."""
        return sum(count * width for count, width in zip(self.counts, self.widths, strict=True))

    def bases(self, rows: int) -> list[int]:
        """Return the offset of each feature in a buffer, followed by the end of the last one."""
        sizes = (align(rows * count * width, ALIGNMENT) for count, width in zip(self.counts, self.widths, strict=True))
        return [0, *accumulate(sizes)]

    def buffer_bytes(self, rows: int) -> int:
        """Return the size of a buffer for `rows` rows."""
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
        """Return the layout as a tuple of arrays, in the order that kernels expect."""
        numbers = (np.array(values, dtype=np.int64) for values in (self.counts, self.widths, self.bases(rows)[:-1]))
        return (self.name_bytes, self.name_starts, self.kind_numbers, *numbers)
