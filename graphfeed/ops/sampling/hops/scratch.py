"""Scratch of the passes of sampling, laid out as `graphfeed.ops.cpu.sampling.passes` says."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ops.cpu.sampling.passes import candidates, in_time, labor, marks, state, uniform, weighted
from graphfeed.ops.memory import align, buffers
from graphfeed.ops.rows.gather_by_page import new_order

LEAST_COLUMNS = 1 << 10
"""There is room for this many columns at least."""
BLOCK_EDGES = 1 << 16
"""How many edges are gathered side by side; a column that has more makes room for all of them."""
NO_WORDS: NDArray[np.int64] = np.empty(0, np.int64)
NO_HALVES = np.empty(0, np.int32)


def new_columns(kinds: int, by_run: bool) -> state.Runs:
    """Return room for columns of so many node types, or for runs, each of which has a fan-out."""
    size = LEAST_COLUMNS
    sizes, bounds = np.zeros(3, np.int64), np.zeros(kinds + 1, np.int64)
    ids, bases, starts, degrees = (np.empty(size, np.int64) for _ in range(4))
    states, offsets = np.empty(size, np.uint64), np.zeros(size + 1, np.int64)
    fanouts = np.empty(size if by_run else 1, np.int64)
    return state.Runs(
        sizes, bounds, ids, bases, starts, degrees, states, offsets, fanouts, NO_WORDS, np.empty(0, np.uint64)
    )


def new_scratch(name: str, sources: Any, indexed: int) -> Any:
    """Return the scratch of a name, given the dtype of edges' sources, and how many columns LABOR's index has."""
    room = candidates.MAX_CANDIDATES
    if name in ("runs", "block"):
        return new_columns(1, True)
    if name == "gathered":
        return in_time.Gathered(np.empty(BLOCK_EDGES, np.int64), np.zeros(2, np.int64))
    if name == "gathered sums":
        return state.Sums(np.empty(BLOCK_EDGES, np.int64), NO_HALVES)
    if name == "gathered sources":
        return state.Sources(np.empty(BLOCK_EDGES, sources))
    if name == "order":
        return new_order()
    if name == "table":
        return uniform.Table(NO_WORDS)
    if name == "heap":
        return labor.Heap(np.empty(0, np.uint64), np.empty(0, np.uint64))
    if name == "candidates":
        high_halves, places, chosen = (np.empty(room, np.uint32) for _ in range(3))
        return candidates.Candidates(high_halves, places, chosen, np.empty(room + 1, np.uint64))
    if name == "index":
        return candidates.Index(*[NO_WORDS] * 4)
    if name == "no buckets":
        return new_buckets(0)
    return new_buckets(indexed) if name == "buckets" else new_queue()


def new_buckets(indexed: int) -> candidates.Buckets:
    """Return room for the candidates of so many indexed columns."""
    limits, counts = np.empty(indexed, np.uint32), np.empty(indexed, np.int64)
    room = indexed, likely_candidates(candidates.MAX_COLLECTED)
    high_halves, places = np.empty(room, np.uint32), np.empty(room, np.uint32)
    # A batch is full once it has so many nodes, of which the last block brings up to `LANES`.
    nodes = np.empty(candidates.BATCH + marks.LANES, np.int64)
    return candidates.Buckets(np.empty(indexed, np.int32), NO_HALVES, limits, counts, high_halves, places, nodes)


def likely_candidates(fanout: int) -> int:
    """Return how many candidates a bucket has room for: twice as many as are expected, in whole lanes."""
    return align(2 * (fanout + 2 * int(fanout**0.5) + 8), marks.LANES)


def new_queue() -> weighted.Queue:
    of_runs = [np.empty(weighted.BLOCK, np.int64) for _ in range(6)]
    of_draws = [np.empty(weighted.DRAWS, np.int64) for _ in range(4)]
    of_rows = [np.empty(weighted.BLOCK, np.int64) for _ in range(2)]
    of_picks = [np.empty((weighted.BLOCK, weighted.MAX_PICKS), np.int64) for _ in range(4)]
    return weighted.Queue(*[*of_runs, np.empty(weighted.BLOCK), *of_draws, *of_rows, *of_picks])


def enlarge(array: NDArray[Any], size: int) -> NDArray[Any]:
    if array.size >= size:
        return array
    larger = buffers.POOL.empty(size, array.dtype)
    larger[: array.size] = array
    return larger
