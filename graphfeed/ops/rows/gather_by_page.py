"""Gather numbers of a memory-mapped file whose pages may not be in memory."""

import itertools
import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.pages import CHUNK, DIGIT_BITS, Order
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits

PAGE_BITS = mmap.PAGESIZE.bit_length() - 1
Each: TypeAlias = Callable[..., Iterable[Any]]
"""Like `map`."""


def gather_by_page(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return `values[positions]` of a memory-mapped array, reading its pages in order.

    If all pages are in memory, `gather_unchecked` is faster, since it doesn't sort.

    Example:
        >>> gather_by_page(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
        tensor([7, 5])
    """
    out = buffers.empty(positions.numel(), values.dtype)
    module = kernels("rows.gather_by_page", values, positions=positions)
    module.gather_by_page(values, positions.contiguous(), PAGE_BITS, new_order(positions.numel()), out)
    return out


def gather_each_by_page(
    values: torch.Tensor, positions: Sequence[torch.Tensor], each: Each = map
) -> list[torch.Tensor]:
    """Return `values[part]` for each tensor in `positions`; each page is read once for all of them.

    Pages are read in the order of the file, adjacent ones together. Values are gathered from some pages while the next
    ones are read.

    Args:
        values: int32 or int64, 1-D and contiguous, in a memory-mapped file.
        positions: Tensors of int64, of any length; not checked.
        each: A function like `map`, which may use threads.

    Example:
        >>> gather_each_by_page(torch.tensor([5, 6, 7]), [torch.tensor([2, 0]), torch.tensor([1])])
        [tensor([7, 5]), tensor([6])]
    """
    module = kernels("rows.gather_by_page", values)
    out = [buffers.empty(part.numel(), values.dtype) for part in positions]
    pages = np.zeros((values.nbytes >> PAGE_BITS) + 2, np.uint8)

    def begin(number: int, start: int) -> "PagedRead":
        part, own = positions[number][start : start + CHUNK], out[number][start : start + CHUNK]
        order = new_order(part.numel())
        module.order_by_page(values, part, PAGE_BITS, order, pages)
        return PagedRead(part, own, order.keys)

    def go_on(reading: "PagedRead") -> None:
        reading.done = module.gather_until(values, reading.positions, reading.keys, reading.done, end, reading.out)

    starts = [(number, start) for number, part in enumerate(positions) for start in range(0, part.numel(), CHUNK)]
    readings = list(each(begin, *zip(*starts, strict=True))) if starts else []
    # Between two of these are `read_pages` requested pages.
    step = current_limits().read_pages
    ends = [*np.flatnonzero(pages)[step::step].tolist(), pages.size]
    module.ask_marked(values, PAGE_BITS, pages, 0, ends[0])
    for end, after in itertools.pairwise([*ends, pages.size]):
        # While these are used, the disk reads the next ones.
        module.ask_marked(values, PAGE_BITS, pages, end, after)
        list(each(go_on, readings))
    return out


@dataclass
class PagedRead:
    """The progress of gathering a chunk of positions while pages are read."""

    positions: torch.Tensor
    out: torch.Tensor
    keys: NDArray[np.uint64]
    """Page and number of each position, sorted."""
    done: int = 0
    """Number of positions that have been read."""


def new_order(most: int = CHUNK) -> Order:
    # No larger than the number of values.
    keys, spare = (np.empty(min(most, CHUNK), np.uint64) for _ in range(2))
    return Order(keys, spare, np.empty(1 << DIGIT_BITS, np.int64))
