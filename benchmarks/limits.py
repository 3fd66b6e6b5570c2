"""The machine's own limits: random reads with software prefetch, and memcpy into used memory."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64s, UInt64, kernel, prefetch

Array = npt.NDArray[Any]

INDEXES = 1 << 22
"""Number of indexes: large enough that no cache still has the items of the first ones."""


class RandomReads:
    """Read random items of an array, and add them up so that no read can be optimized away."""

    def __init__(self, values: Array, seed: int) -> None:
        self.values = values
        self.indexes = np.empty(INDEXES, np.int64)
        self.next = 0
        draw_indexes(np.uint64(seed), len(values), self.indexes)
        self.run(1)

    def run(self, count: int) -> int:
        """Read `count` items at indexes that the last runs have not used."""
        total = 0
        while count:
            indexes = self.indexes[self.next : self.next + count]
            total += sum_reads(self.values, indexes)
            self.next = (self.next + len(indexes)) % INDEXES
            count -= len(indexes)
        return total


class Copy:
    """Copy bytes from one used buffer to another."""

    def __init__(self, size_bytes: int) -> None:
        self.source = np.ones(size_bytes, np.uint8)
        self.target = np.zeros(size_bytes, np.uint8)

    def run(self) -> None:
        """Call the C library's memcpy once."""
        ctypes.memmove(self.target.ctypes.data, self.source.ctypes.data, self.source.nbytes)


@kernel
def draw_indexes(seed: UInt64, bound: int, out: Int64s) -> None:
    """Fill `out` with numbers below `bound` by a keyed hash (splitmix64)."""
    for number in range(len(out)):
        x = seed + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        out[number] = np.int64(((x >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@kernel
def sum_reads(values: Ids, indexes: Int64s) -> int:
    """Add `values[i]` for all indexes, each prefetched `AHEAD` reads before it is used."""
    total: int = 0
    whole = max(len(indexes) - AHEAD, 0)
    for number in range(whole):
        prefetch(values, indexes[number + AHEAD])
        total += values[indexes[number]]
    for number in range(whole, len(indexes)):
        total += values[indexes[number]]
    return total
