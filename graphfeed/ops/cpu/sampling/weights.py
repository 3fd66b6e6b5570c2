"""Kernels for running sums of weights, and for guides into them."""

import numpy as np

from graphfeed.ops.cpu.jit import Int32s, Int64s, Weights, kernel
from graphfeed.ops.cpu.sampling.passes.weighted import LINE, guess_place

UNITS = 2147483648.0


@kernel
def cumulate_weights(indptr: Int64s, weights: Weights, out: Int64s) -> None:
    """Write the running sums of each column's weights, in units of `2**-31` of the column's largest weight."""
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


FARTHEST = np.int64(np.iinfo(np.int32).max)


@kernel
def guide_sums(indptr: Int64s, cumulative: Int64s, guides: Int32s) -> int:
    """Write the guides of all columns; return the number of shares where a draw without them would miss at first."""
    missed = np.int64(0)
    for column in range(indptr.size - 1):
        low, high = indptr[column], indptr[column + 1]
        total = cumulative[high - 1] if high > low else np.int64(0)
        if total == 0:
            guides[low:high] = 0
            continue
        density, edge = np.float64(high - low) / np.float64(total), low
        for place in range(low, high):
            while edge < high - 1 and guess_place(low, high, cumulative[edge] - 1, density) < place:
                edge += 1
            # Stored as a distance, which fits into 32 bits even if positions don't.
            guides[place] = min(max(edge - place, -FARTHEST), FARTHEST)
            # The guess of a draw without guides, for a goal in the middle of this share (see `look_closer`).
            middle = (np.float64(place - low) + 0.5) / density
            guess = place + np.int64((middle - np.float64(cumulative[place])) * density)
            missed += np.int64(abs(guess - edge) > LINE // 2)
    return missed
