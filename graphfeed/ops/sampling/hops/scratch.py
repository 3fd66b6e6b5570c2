"""Blocks of arrays for passes, made by the annotations of their named tuples in `graphfeed.ops.cpu.sampling.passes`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ops.cpu.jit import Block, fields_of
from graphfeed.ops.cpu.pages import CHUNK, DIGIT_BITS, Order
from graphfeed.ops.cpu.sampling.passes import candidates, in_time, marks, state, weighted
from graphfeed.ops.memory import align, buffers

BLOCK_EDGES = 1 << 16
"""How many edges are gathered side by side; a column that has more makes room for all of them."""
LEAST_COLUMNS = 1 << 10
"""There is room for this many columns at least."""
OF_PICKS = ("marks", "weights", "ranks", "edges")
FIRST_PICKS = 56
"""How many picks of a run by weight there is room for at first."""
MOST_CANDIDATES = candidates.MAX_CANDIDATES
FIRST_SIZES: dict[type, dict[Any, Any]] = {
    state.Indptr: {"num_edges": 1},
    state.Runs: {1: LEAST_COLUMNS, "offsets": LEAST_COLUMNS + 1, "sizes": 3, "fanouts": 1, "scratch": 0, "keys": 0},
    in_time.Gathered: {"ranks": BLOCK_EDGES, "cursor": 2},
    Order: {1: CHUNK, "counts": 1 << DIGIT_BITS},
    candidates.Candidates: {1: MOST_CANDIDATES, "words": MOST_CANDIDATES + 1},
    weighted.Queue: {1: weighted.DRAWS} | dict.fromkeys(OF_PICKS, weighted.BLOCK * FIRST_PICKS),
}
"""Of arrays by name, or of all others by their number of dimensions; they are empty where nothing is said."""


def new_block(kind: Any, chosen: dict[str, str], sizes: dict[str, Any]) -> Block:
    """Return a block of zeros for a named tuple, given the dtypes of arrays that have a choice, and sizes."""
    given: dict[Any, Any] = FIRST_SIZES.get(kind, {}) | sizes
    shapes = [given.get(name, given.get(part.ndim, (0,) * part.ndim)) for name, part in fields_of(kind)]
    dtypes = [part.dtype_in(chosen) for _, part in fields_of(kind)]
    return Block(kind(*map(np.zeros, shapes, dtypes)))


def bucket_sizes(indexed: int) -> dict[str, Any]:
    """Return the sizes of `Buckets` for so many indexed columns."""
    # A batch is full once it has so many nodes, of which the last block brings up to `LANES`.
    nodes, by_column = candidates.BATCH + marks.LANES, (indexed, likely_candidates(candidates.MAX_COLLECTED))
    sizes = dict.fromkeys(("of_index", "limits", "counts"), indexed)
    return sizes | dict.fromkeys(("high_halves", "places"), by_column) | {"nodes": nodes}


def likely_candidates(fanout: int) -> int:
    """Return how many candidates a bucket has room for: twice as many as are expected, in whole lanes."""
    return align(2 * (fanout + 2 * int(fanout**0.5) + 8), marks.LANES)


def enlarge(array: NDArray[Any], size: int) -> NDArray[Any]:
    if array.size >= size:
        return array
    larger = buffers.POOL.empty(size, array.dtype)
    larger[: array.size] = array
    return larger
