"""Lookups for kernels: in hash tables with open addressing, and in ascending arrays.

The size of a table is a power of two. Free slots contain -1, and there must be at least one. A table contains keys
(`find_key`), or indices of entries whose keys are in another array (`find_entry`).
"""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, multiply_high
from graphfeed.ops.cpu.random import GOLDEN

NEAR = 16
"""Number of types that `near_end` compares at once."""


@device_function
def first_slot(size, key):
    """Return the slot where the search for a key begins, by Fibonacci hashing."""
    # The upper bits of the product depend on all bits of the key.
    return np.int64(multiply_high(np.uint64(key) * GOLDEN, np.uint64(size)))


@device_function
def find_key(keys, size, key):
    """Return the slot of a key among the first `size` slots, or the free slot where it belongs."""
    slot = first_slot(size, key)
    there = keys[np.uintp(slot)]
    while there != -1 and there != key:
        slot = (slot + 1) & (size - 1)
        there = keys[np.uintp(slot)]
    return slot


@device_function
def find_entry(table, keys, key):
    """Return the slot of the entry with a key, or the free slot where it belongs."""
    slot = first_slot(table.size, key)
    while table[np.uintp(slot)] >= 0 and keys[np.uintp(table[np.uintp(slot)])] != key:
        slot = (slot + 1) & (table.size - 1)
    return slot


@device_function
def first_above(values, low, high, target):
    """Return the first index from `low` to `high - 1` of an ascending array with a value above `target`, or `high`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@device_function
def run_end(types, low, end):
    """Return the end of the run of edges of one type that begins at `low`. Without types, the end of the column."""
    if types.size == 0:
        return end
    edge_type, size = types[np.uintp(low)], end - low
    # A select instead of a branch, since the comparison can't be predicted.
    while size > 1:
        half = size >> 1
        low = low + half if types[np.uintp(low + half)] <= edge_type else low
        size -= half
    return low + 1


@device_function
def near_end(types, low, end):
    """Like `run_end`, but faster if most runs are shorter than `NEAR`, whose types are compared in SIMD registers."""
    size, known = end - low, low + NEAR <= types.size
    edge_type, count = types[np.uintp(low)], 0
    for place in range(NEAR if known else 0):
        count += (types[np.uintp(low + place)] <= edge_type) & (place < size)
    return low + count if known and count < NEAR else run_end(types, low, end)
