"""Kernel of membership, by open addressing."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.random import mix


@device_function
def find_slot(table, values, value):
    """Return the slot that holds the position of an equal value, or the free slot where it belongs."""
    mask = table.size - 1
    slot = np.int64(mix(np.uint64(value)) >> np.uint64(1)) & mask
    while table[slot] != -1 and values[table[slot]] != value:
        slot = (slot + 1) & mask
    return slot


@kernel
def isin(elements, test_elements, table, out):
    """Write whether each element is a test element; `table` is all -1, longer than those, and a power of two."""
    for place in range(test_elements.size):
        table[find_slot(table, test_elements, np.int64(test_elements[place]))] = place
    for place in range(elements.size):
        out[place] = table[find_slot(table, test_elements, np.int64(elements[place]))] != -1
