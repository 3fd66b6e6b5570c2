"""Allocate the blocks of arrays that passes in `graphfeed.ops.cpu.sampling.passes` declare as named tuples."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ops.cpu.jit import Block, fields_of
from graphfeed.ops.cpu.pages import CHUNK, DIGIT_BITS, Order
from graphfeed.ops.cpu.sampling.passes import candidates, in_time, marks, state, weighted
from graphfeed.ops.memory import align, buffers

BLOCK_EDGES = 1 << 16
"""Number of edges that are gathered in a block, which grows for a column with more edges."""
LEAST_COLUMNS = 1 << 10
"""Minimum capacity, in columns."""
OF_PICKS = ("marks", "weights", "ranks", "edges")
FIRST_PICKS = 56
"""Initial capacity for the weighted picks of a run."""
MOST_CANDIDATES = candidates.MAX_CANDIDATES
FIRST_SIZES: dict[type, dict[Any, Any]] = {
    state.Indptr: {"num_edges": 1},
    state.Runs: {1: LEAST_COLUMNS, "offsets": LEAST_COLUMNS + 1, "sizes": 3, "fanouts": 1, "scratch": 0, "keys": 0},
    in_time.Gathered: {"ranks": BLOCK_EDGES, "cursor": 2},
    Order: {1: CHUNK, "counts": 1 << DIGIT_BITS},
    candidates.Candidates: {1: MOST_CANDIDATES, "words": MOST_CANDIDATES + 1},
    weighted.Queue: {1: weighted.DRAWS} | dict.fromkeys(OF_PICKS, weighted.BLOCK * FIRST_PICKS),
}
"""Initial sizes of arrays by name, and of the others by their number of dimensions. Arrays not listed are empty."""


def new_block(kind: Any, chosen: dict[str, str], sizes: dict[str, Any]) -> Block:
    """Return a block of zeros for a named tuple; `chosen` has the dtypes of arrays that allow several."""
    given: dict[Any, Any] = FIRST_SIZES.get(kind, {}) | sizes
    shapes = [given.get(name, given.get(part.ndim, (0,) * part.ndim)) for name, part in fields_of(kind)]
    dtypes = [part.dtype_in(chosen) for _, part in fields_of(kind)]
    return Block(kind(*map(np.zeros, shapes, dtypes)))


def bucket_sizes(indexed: int) -> dict[str, Any]:
    """Return the sizes of `Buckets` for a number of indexed columns."""
    # A batch is full at `BATCH` nodes or more; its last block adds up to `LANES`.
    nodes, by_column = candidates.BATCH + marks.LANES, (indexed, likely_candidates(candidates.MAX_COLLECTED))
    sizes = dict.fromkeys(("of_index", "limits", "counts"), indexed)
    return sizes | dict.fromkeys(("high_halves", "places"), by_column) | {"nodes": nodes}


def likely_candidates(fanout: int) -> int:
    """Return the capacity of a bucket: twice the expected number of candidates, rounded up to full lanes."""
    return align(2 * (fanout + 2 * int(fanout**0.5) + 8), marks.LANES)


def enlarge(array: NDArray[Any], size: int) -> NDArray[Any]:
    if array.size >= size:
        return array
    larger = buffers.POOL.empty(size, array.dtype)
    larger[: array.size] = array
    return larger
