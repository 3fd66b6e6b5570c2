"""Kernel that turns weights into fixed-point running sums."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, Weights, kernel

UNITS = 2147483648.0


@kernel
def cumulate_weights(indptr: Int64s, weights: Weights, out: Int64s) -> None:
    """Write each column's running sum of weights, in units of `2**-31` of the column's largest."""
    for column in range(indptr.size - 1):
        low, high = indptr[column], indptr[column + 1]
        largest = 0.0
        for edge in range(low, high):
            largest = max(largest, np.float64(weights[edge]))
        total = np.int64(0)
        for edge in range(low, high):
            weight = np.float64(weights[edge])
            if weight > 0:
                # At least one unit, so that a small weight stays eligible.
                total += max(np.int64(1), np.int64(np.floor(weight / largest * UNITS + 0.5)))
            out[edge] = total
