"""The partition book: the owner of each global id, and its offset among the ids of its part."""

import zlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_vector, checked
from graphfeed.ops.rows import gather_unchecked
from graphfeed.ops.structure import TYPE_DTYPES


class PartBook:
    """Maps each global id to the part that owns it. Within a part, offsets ascend with the ids.

    For parts of consecutive ids, `PartBook.from_bounds` returns a book that stores only their bounds.
    """

    @checked
    def __init__(self, owners: torch.Tensor, num_parts: int) -> None:
        self.owners = owners
        self.num_ids = owners.numel()
        self.num_parts = num_parts

    @cached_property
    def checksum(self) -> torch.Tensor:
        """A checksum of the owners, which ranks compare: one value, int64."""
        return book_checksum(self.owners)

    @cached_property
    def offsets(self) -> torch.Tensor:
        """The offset of each id in its part, computed on first use."""
        offsets = torch.empty(self.num_ids, dtype=torch.int64 if self.num_ids > 1 << 31 else torch.int32, device="cpu")
        for part in range(self.num_parts):
            ids = self.ids_of(part)
            offsets[ids] = torch.arange(ids.numel(), dtype=offsets.dtype, device="cpu")
        return offsets

    def owners_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the part of each id, as small integers; the ids are not checked."""
        return gather_unchecked(self.owners, ids)

    def offsets_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the offset of each id among the ids of its part; the ids are not checked."""
        return gather_unchecked(self.offsets, ids)

    def locate(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the part of each id, and its offset in that part; the ids are not checked."""
        return self.owners_of(ids), self.offsets_of(ids)

    @checked
    def ids_of(self, part: int) -> torch.Tensor:
        """Return the ids of a part, int64, ascending."""
        return torch.from_numpy(np.flatnonzero(self.owners.numpy() == part))

    def within(self, start: int, stop: int) -> "PartBook":
        """Return the book of a range of ids, renumbered from 0: the ids of one node type, for example."""
        return PartBook(self.owners[start:stop], self.num_parts)

    @staticmethod
    @checked
    def from_bounds(bounds: Sequence[int]) -> "PartBook":
        """Return the book of parts of consecutive ids.

        Args:
            bounds: Part `i` owns the ids from `bounds[i]` up to, but not including, `bounds[i + 1]`.

        Raises:
            ValueError: The bounds don't ascend from 0.

        Example:
            >>> PartBook.from_bounds([0, 2, 5]).owners_of(torch.tensor([1, 2, 4])).tolist()
            [0, 1, 1]
        """
        numbers = [int(bound) for bound in bounds]
        if len(numbers) < 2 or numbers[0] != 0 or numbers != sorted(numbers):
            raise ValueError(f"bounds must ascend from 0 and have one value more than parts, but are {numbers}")
        return RangeBook(numbers)

    @staticmethod
    @checked
    def from_assignment(assignment: torch.Tensor, num_parts: int | None = None) -> "PartBook":
        """Return the book of an arbitrary assignment. It takes 1 to 4 bytes per id, and 4 or 8 more for offsets.

        Args:
            assignment: The part of each id, of an integer dtype.
            num_parts: By default, one more than the largest part in the assignment.

        Raises:
            ValueError: A part is negative or not below `num_parts`.

        Example:
            >>> book = PartBook.from_assignment(torch.tensor([1, 0, 1]))
            >>> book.ids_of(1).tolist(), book.offsets_of(torch.tensor([2])).tolist()
            ([0, 2], [1])
        """
        check_vector("assignment", assignment, TYPE_DTYPES)
        values = assignment.cpu().numpy()  # for small integers, its min and max are 100 times as fast as torch's
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        count = high + 1 if num_parts is None else num_parts
        check_count("num_parts", count, 1)
        if low < 0 or high >= count:
            raise ValueError(f"assignment must have parts in 0 .. {count - 1}, but has {low if low < 0 else high}")
        return PartBook(assignment.to("cpu", smallest_dtype(count)).contiguous(), count)


def book_checksum(owners: torch.Tensor) -> torch.Tensor:
    return torch.tensor(zlib.crc32(owners.numpy().data), device="cpu")


def smallest_dtype(count: int) -> torch.dtype:
    """Return the smallest dtype for numbers below a count."""
    return torch.uint8 if count <= 1 << 8 else torch.int16 if count <= 1 << 15 else torch.int32


class RangeBook(PartBook):
    """A book of parts of consecutive ids that stores only their bounds."""

    def __init__(self, bounds: list[int]) -> None:
        self.bounds = torch.tensor(bounds, device="cpu")
        self.num_ids = bounds[-1]
        self.num_parts = len(bounds) - 1

    @cached_property
    def checksum(self) -> torch.Tensor:
        parts = torch.arange(self.num_parts, device="cpu").to(smallest_dtype(self.num_parts))
        return book_checksum(
            parts.repeat_interleave(self.bounds.diff())
        )  # equal to that of the same parts in a PartBook

    def owners_of(self, ids: torch.Tensor) -> torch.Tensor:
        # The part of an id is the number of inner bounds that are not above it, those of empty parts included.
        # By NumPy: torch's function waits for busy cores, starting at about 200 values.
        owners = np.searchsorted(self.bounds[1:-1].numpy(), ids.numpy(), side="right")
        return torch.from_numpy(owners.astype(np.int32))

    def offsets_of(self, ids: torch.Tensor) -> torch.Tensor:
        return self.locate(ids)[1]

    def locate(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        owners = self.owners_of(ids)
        return owners, ids - gather_unchecked(self.bounds, owners)

    @checked
    def ids_of(self, part: int) -> torch.Tensor:
        return torch.arange(int(self.bounds[part]), int(self.bounds[part + 1]), device="cpu")

    def within(self, start: int, stop: int) -> PartBook:
        return RangeBook((self.bounds.clamp(start, stop) - start).tolist())
