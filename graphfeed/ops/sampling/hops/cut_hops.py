"""Cut the arrays of a program into the hops of mini-batches."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.cpu.sampling.passes import layout, state
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays, Ints
from graphfeed.ops.sampling.hops.hop_recipe import HopEdges, JoinedHops, Read, SampledHop

NO_IDS = np.empty(0, np.int64)
BY_HOP = "edge_starts", "indptr_starts", "indptr_ends"
"""Bounds of a mini-batch's hops in the arrays of its edges and column starts."""


def hops_of(arrays: HopArrays, read: Read | torch.Tensor | None) -> list[SampledHop]:
    """Split the arrays of a mini-batch into hops, beginning with the hop of the seeds."""
    (rows, neighbors), own, kinds = arrays.nodes.arrays.values(), arrays.rows.arrays, arrays.relations.arrays
    positions = arrays.edges.arrays["positions"]
    if callable(read):
        positions = read(torch.from_numpy(positions[: int(kinds["edge_starts"][-1, 0])])).numpy()
    indptr = arrays.column_starts(arrays.starts.arrays["indptr"], int(kinds["indptr_ends"][-1]))
    bounds = [kinds[name].tolist() for name in BY_HOP]
    return cut_hops(rows, own["firsts"].tolist(), own["known"].tolist(), (neighbors, positions, indptr), bounds)


def hops_of_window(arrays: HopArrays, read: Read | torch.Tensor | None) -> list[list[SampledHop]]:
    """Split the arrays of several mini-batches into the hops of each."""
    rows, neighbors, positions, indptr, *_ = arrays.kept.arrays.values()
    known, *bounds = (part.tolist() for part in bounds_of_window(arrays))
    num_edges, num_starts = arrays.kept.arrays["ends"][[state.EDGES, state.STARTS]].tolist()
    indptr = arrays.column_starts(indptr, num_starts)
    if callable(read):
        positions = read(torch.from_numpy(positions[:num_edges])).numpy()
    row = edge = start = 0
    cut = []
    for counts, *own in zip(known, *bounds, strict=True):
        firsts = [*accumulate(counts[-1], initial=row)]
        by_edge = neighbors[edge:], positions[edge:], indptr[start:]
        cut.append(cut_hops(rows, firsts, counts, by_edge, own))
        row, edge, start = firsts[-1], edge + own[0][-1][0], start + own[2][-1]
    return cut


def bounds_of_window(arrays: HopArrays) -> list[Ints]:
    """Return, for each mini-batch, the number of nodes of each type before each hop, and the bounds of `BY_HOP`."""
    records = arrays.kept.arrays["records"]
    shapes = [arrays.rows.arrays["known"].shape, *(arrays.relations.arrays[name].shape for name in BY_HOP)]
    ends = [0, *accumulate(map(prod, shapes))]
    table = records.reshape(-1, ends[-1])
    return [table[:, first:end].reshape(-1, *shape) for shape, (first, end) in zip(shapes, pairwise(ends), strict=True)]


def cut_hops(
    rows: NDArray[Any],
    firsts: Sequence[int],
    known: Sequence[Sequence[int]],
    by_edge: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    bounds: Sequence[Any],
) -> list[SampledHop]:
    """Cut the arrays of a mini-batch, given the first row of each node type, and the bounds of the hops."""
    # Slice NumPy arrays, not tensors, so that the storage of each result is no larger than the result; unless it is
    # pinned, where all results of a kind are copied to the GPU together.
    whole, neighbors, positions, indptr = map(buffers.pinned_tensor, (rows, *by_edge))
    nodes = [
        [buffers.as_tensor(whole[first : first + count]) for first, count in zip(firsts, own, strict=False)]
        for own in known
    ]
    edge_starts, indptr_starts, indptr_ends = bounds
    hops = []
    for hop, (starts, places) in enumerate(zip(edge_starts, indptr_starts, strict=False)):
        edges, end = {}, indptr_ends[hop + 1]
        for kind in range(len(places) - 1, -1, -1):
            low, high = starts[kind], starts[kind + 1]
            if low < high:
                parts = indptr[places[kind] : end], neighbors[low:high], positions[low:high]
                edges[kind], end = HopEdges(*map(buffers.as_tensor, parts)), places[kind]
        hops.append(SampledHop(nodes[hop], nodes[hop + 1], edges))
    return hops


def joined_views(arrays: HopArrays, read: Read | torch.Tensor | None) -> JoinedHops:
    """Join all hops of a mini-batch in one array, with one kernel, and return views of it."""
    known, edge_starts = arrays.rows.arrays["known"], arrays.relations.arrays["edge_starts"]
    if callable(read):
        positions = arrays.edges.arrays["positions"][: int(edge_starts[-1, 0])]
        positions[:] = read(torch.from_numpy(positions)).numpy()
    num_rows = int(known[-1].sum()) * (2 if arrays.recipe.drawing.rows == "tree" else 1)
    out = buffers.POOL.empty(3 * int(edge_starts[-1, 0]) + num_rows, np.int64)
    arrays.kept.set_array("joined", out)
    arrays.kept.arrays["ends"][state.JOINED] = 0
    layout.write_joined_hops(
        arrays.relations, arrays.starts, arrays.rows, arrays.nodes, arrays.table, arrays.edges,
        state.EdgeIds(read if isinstance(read, torch.Tensor) else NO_IDS), arrays.kept,
    )  # fmt: skip
    [joined] = cut_joined(arrays, known[None], edge_starts[None])
    return joined


def joined_of_window(arrays: HopArrays) -> list[JoinedHops]:
    """Return views of the joined hops of several mini-batches."""
    known, edge_starts, *_ = bounds_of_window(arrays)
    return cut_joined(arrays, known, edge_starts)


def cut_joined(arrays: HopArrays, known: Ints, edge_starts: Ints) -> list[JoinedHops]:
    """Cut what `write_joined_hops` wrote for each mini-batch, given the bounds of its hops."""
    num_edges = (edge_starts[:, :-1, 1:] - edge_starts[:, :-1, :-1]).transpose(0, 2, 1)
    added, has_trees = known.copy(), arrays.recipe.drawing.rows == "tree"
    added[:, 1:] -= known[:, :-1]
    shapes: list[tuple[int, ...]] = []
    for of_types, counts in zip(num_edges.sum(2).tolist(), known[:, -1].tolist(), strict=True):
        shapes += [shape for own in of_types for shape in ((2, own), (own,))]
        shapes += [(count,) for count in counts] * (1 + has_trees)
    parts = buffers.parts_of(arrays.kept.arrays["joined"], shapes)
    first, end = 2 * num_edges.shape[1], 2 * num_edges.shape[1] + known.shape[2]
    joined, at, step = [], 0, end + has_trees * known.shape[2]
    for of_rows, of_edges in zip(added.transpose(0, 2, 1).tolist(), num_edges.tolist(), strict=True):
        own = parts[at : at + step]
        at += step
        joined.append(
            JoinedHops(
                dict(enumerate(own[first:end])),
                dict(enumerate(of_rows)),
                dict(enumerate(own[:first:2])),
                dict(enumerate(own[1:first:2])),
                dict(enumerate(of_edges)),
                dict(enumerate(own[end:])) if has_trees else None,
            )
        )
    return joined
