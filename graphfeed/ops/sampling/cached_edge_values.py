"""Values of edges, some of whose columns a GPU has cached."""

from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops.arguments import check_ids, check_length, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import OneHop, Picks, StaticGraph, check_fanouts, pick_on_gpu
from graphfeed.ops.structure.csc import TYPE_DTYPES

NOT_CACHED = -(1 << 62)
"""The cache offset of a column that is not cached."""


class CachedEdgeValues(NamedTuple):
    """A value per edge of a graph, and for one hop the cached copies of some of its columns."""

    values: torch.Tensor
    """Of an integer dtype, in the order of the graph's edges."""
    cached: torch.Tensor
    """Copies of the values of some columns, each in one piece."""
    cache_offsets: torch.Tensor
    """int64, one per column of the hop: its position in `cached` minus that in `values`, or `NOT_CACHED`."""

    def contiguous(self) -> Self:
        """Return the same in one piece each."""
        return type(self)(*(part.contiguous() for part in self))


class CachedColumns(NamedTuple):
    """The edge arrays of a graph that one hop reads on a GPU, each with cached copies of the same columns."""

    indices: CachedEdgeValues
    types: CachedEdgeValues | None = None
    weights: CachedEdgeValues | None = None
    """Fixed-point running sums."""
    edge_ids: CachedEdgeValues | None = None


def read_edges(edges: CachedEdgeValues, offsets: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return `edges.values[positions]`, read from the cached columns where there are any.

    A GPU reads values in pinned memory over the bus, with no more threads than `set_max_uva_threads` allows. A position
    costs one read, and a search for its column. The CPU, which has no use for such a cache, reads the values alone.

    Args:
        edges: What to read; the copies lie where the positions do.
        offsets: int64: where each column's positions begin, one longer than there are columns.
        positions: int64.

    Raises:
        TypeError: The copies have another dtype than the values, or the cache offsets are not int64.
        ValueError: There is not one cache offset per column, or the values lie on another device than the positions
            and are not pinned. On the CPU also: a position that is not there.

    Example:
        >>> edges = CachedEdgeValues(torch.tensor([5, 6, 7, 8]), torch.tensor([7, 8]), torch.tensor([NOT_CACHED, -2]))
        >>> read_edges(edges, torch.tensor([0, 1, 2]), torch.tensor([1, 3])).tolist()
        [6, 8]
    """
    values, cached, cache_offsets = edges
    check_vector("cache_offsets", cache_offsets, (torch.int64,))
    check_tensors(values=values, cached=cached, offsets=offsets)
    if cached.dtype != values.dtype:
        raise TypeError(f"cached must be {values.dtype} as values, but is {cached.dtype}")
    check_length("cache_offsets", cache_offsets, offsets.numel() - 1, "column")
    check_vector("positions", positions, (torch.int64,))
    if positions.is_cpu:
        check_vector("values", values, TYPE_DTYPES)
        check_ids("positions", positions, values.numel())
        return take_rows(values, positions)
    others = {"values": values, "cached": cached, "cache_offsets": cache_offsets}
    module = kernels("sampling.cached_edge_values", positions, **others)
    out = buffers.empty(positions.numel(), values.dtype, positions.device)
    module.read_edges(*(part.contiguous() for part in (values, cached, offsets, positions, cache_offsets)), out)
    return out


def sample_cached_columns(
    indptr: torch.Tensor,
    edges: CachedColumns,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    drawing: Drawing,
    num_types: int,
) -> Picks:
    """Choose what `sample_neighbors` chooses, on a GPU, by the cached columns.

    The arrays are those of a graph, in memory that the GPU can read, and the seeds are in it: neither is checked.
    """
    parts: Any = edges  # the kernels take a tensor, or one with copies of its columns
    check_fanouts(fanouts, num_types, parts.types, drawing.replace)
    kernels("sampling.sample_neighbors", seeds, indptr=indptr, indices=edges.indices.values)
    graph = StaticGraph(indptr, parts.indices, parts.weights, parts.types, num_types)
    return pick_on_gpu(graph, OneHop(seeds, fanouts, keys, drawing))
