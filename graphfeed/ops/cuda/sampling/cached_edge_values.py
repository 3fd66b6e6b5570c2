"""Kernels that read values of edges from cached columns, or from the graph."""

import torch

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _gather
from graphfeed.ops.sampling.cached_edge_values import CachedEdgeValues


def read_edges(values, cached, offsets, positions, cache_offsets, out):
    """Write the value of each pick: those of cached columns, and then the others, perhaps over the bus."""
    others = torch.empty_like(positions)
    launch(
        "read_cached_edges", positions.numel(),
        cached, cached.itemsize, offsets, cache_offsets.numel(), positions, positions.numel(), cache_offsets, out,
        others,
    )  # fmt: skip
    _gather(values, positions, values.itemsize, out, to_rows=others)


def _copies(edges):
    """Return the cached columns, if there are any."""
    return edges.cached if isinstance(edges, CachedEdgeValues) else None


def _cache_offsets(*arrays):
    """Return the cache offsets, which are the same for all arrays with cached columns."""
    return next((edges.cache_offsets for edges in arrays if isinstance(edges, CachedEdgeValues)), None)


def _values(edges):
    """Return the values of all edges."""
    return edges.values if isinstance(edges, CachedEdgeValues) else edges


def _typed(types):
    """Return the edge types, the bytes of one, and the cached columns."""
    return _values(types), _values(types).itemsize, _copies(types)
