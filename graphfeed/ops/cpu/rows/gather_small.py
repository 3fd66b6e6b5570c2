"""Kernel that copies numbers by index, in fewer bits."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Int32s, Int64s, kernel, prefetch


@kernel
def gather_small(values: Int64s, index: Int64s, out: Int32s) -> int:
    """Copy numbers as those of `out`; return all their bits together."""
    last = index.size - 1
    bits = np.int64(0)
    for row in range(index.size):
        prefetch(values, index[min(row + AHEAD, last)])
        value = values[np.uintp(index[row])]
        bits |= value
        out[row] = value
    return bits
