"""Kernel that reads values of edges where there is a copy, and else where they lie."""

from graphfeed.ops import pinned
from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.sampling.cached_edge_values import KeptEdges


def read_edges(values, kept, offsets, positions, shifts, out):
    """Write the value of each pick; few enough threads wait for the bus to leave the device to others."""
    limit = pinned.max_uva_threads() if values.device.type == "cpu" else None
    launch(
        "read_edges", positions.numel(),
        values, values.itemsize, kept, offsets, shifts.numel(), positions, positions.numel(), shifts, out,
        max_threads=limit,
    )  # fmt: skip


def _copies(edges):
    """Return the copies of columns, if there are any."""
    return edges.kept if isinstance(edges, KeptEdges) else None


def _shifts(*arrays):
    """Return how far the copies lie; they lie alike for all arrays that have copies."""
    return next((edges.shifts for edges in arrays if isinstance(edges, KeptEdges)), None)


def _values(edges):
    """Return the values of all edges."""
    return edges.values if isinstance(edges, KeptEdges) else edges


def _typed(types):
    """Return the edge types, the bytes of one, and the copies."""
    return _values(types), _values(types).itemsize, _copies(types)
