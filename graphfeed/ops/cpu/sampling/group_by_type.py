"""Grouping of the picks of one hop by edge type, with the passes that sample all hops."""

from typing import Any

import numpy as np

from graphfeed.ops.cpu.jit import Program
from graphfeed.ops.cpu.sampling.passes import layout as passes
from graphfeed.ops.cpu.sampling.passes import state

NOTHING = np.empty(0, np.int64)


def group_by_type(
    types: Any,
    positions: Any,
    offsets: Any,
    column_starts: Any,
    destinations: Any,
    bounds: Any,
    indptr: Any,
    grouped: Any,
) -> None:
    """Sort sampled edges by edge type, then by column and position, and write the `indptr` of each type."""
    num_types = destinations.numel()
    sizes = np.array([offsets.numel() - 1, 0, 0])
    nothing, no_states = [NOTHING] * 4, np.empty(0, np.uint64)
    columns = state.Runs(
        *[sizes, column_starts, *nothing, no_states, offsets, np.zeros(1, np.int64), NOTHING, no_states]
    )
    picks = state.PickBlock(positions, np.empty(positions.numel(), np.int32))
    counts = np.zeros(num_types, np.int64)
    first = Program()
    first.add(passes.sort_picks, False, columns, picks)
    first.add(passes.read_types, state.TypePerEdge(types), columns, picks, counts)
    first.run()
    starts = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])[None]
    kinds = state.Relations(NOTHING, destinations, NOTHING, starts, bounds[None, :-1].contiguous(), NOTHING)
    found = np.zeros(indptr.numel(), np.int64)
    edges = state.PickBlock(grouped, np.empty(0, np.int32))
    passes.split_picks(
        0, counts, np.empty(2 * num_types, np.int64), columns, picks, kinds, edges, state.ColumnStarts(found)
    )
    indptr.numpy()[:] = found
