"""Sort the edges of each column by time, so that those before a given time are a prefix."""

import sys
from typing import NamedTuple

import torch

from graphfeed.ops.arguments import bounds, check_ids, check_length, check_vector
from graphfeed.ops.backend import as_int64, as_types, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_columns, edited

UPPER_HALF = int(sys.byteorder == "little")
"""Index of the upper half of an int64 that is viewed as two int32."""
INT64 = torch.iinfo(torch.int64)
ALWAYS = INT64.min
"""The time of nodes and edges without a time: they always exist, and are in every window."""


class TimeOrder(NamedTuple):
    """The edges of each column, or of each edge type in it, sorted by time; equal times keep the order of positions.

    All arrays have an entry per edge, and are indexed by rank: the position of an edge in this order.
    """

    times: torch.Tensor | None = None
    """int64: the sorted times. None: all edges are before any time."""
    order: torch.Tensor | None = None
    """The offset of the edge in its column. None if the edges of the graph are already sorted."""
    links: torch.Tensor | None = None
    """int64: offset and source of the edge (see `link_sources`), which CPU kernels prefer to `order`."""
    earliest: torch.Tensor | None = None
    """int64: a second time of the edge, which must be inside the window, too. It is not later than the first time,
    unless that is `ALWAYS`."""
    cumulative: torch.Tensor | None = None
    """Running sums of weights, as `cumulate_weights` returns them."""


def as_times(name: str, times: object) -> torch.Tensor:
    """Return times as contiguous int64, 1-D. A non-integer dtype raises a TypeError, as rounding would merge times."""
    if isinstance(times, torch.Tensor) and times.is_floating_point():
        rounded = "" if times.dtype == torch.float64 else ", which rounds large numbers: read the times as float64"
        raise TypeError(
            f"{name} must be torch.int64, but is {times.dtype}{rounded}; count whole units, for example microseconds: "
            "(times.double() * 1e6).round().long()"
        )
    check_vector(name, times, (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
    assert isinstance(times, torch.Tensor)
    return times.to(torch.int64).contiguous()


def earliest_times(times: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """Return `time - window + 1`, the first time inside each open window, without overflow."""
    # A window of 0 is empty: its first time is the time itself.
    steps = (windows - 1).clamp(min=0)
    return torch.where(times < INT64.min + steps, INT64.min, times - steps)


def order_by_time(indptr: torch.Tensor, times: torch.Tensor, types: torch.Tensor | None = None) -> TimeOrder:
    """Sort the edges of each column by time (int64, one per edge).

    This is done once per graph. If the edges are already sorted, as in a graph built from an edge list in order of
    time, it takes one pass and no memory; otherwise a sort of each column, and 16 bytes per edge. A GPU sorts all edges
    at once, and temporarily needs about 50 bytes per edge. With `types`, which must ascend within each column, the
    edges of each type are sorted separately.

    Raises:
        ValueError: `indptr` is not valid, or the number of times or of types is wrong.

    Example:
        >>> order_by_time(torch.tensor([0, 3, 5]), torch.tensor([3, 1, 2, 5, 4])).order
        tensor([1, 2, 0, 1, 0])
    """
    check_columns("indptr", indptr)  # each time: undetected edits by NumPy would misdirect writes
    check_vector("times", times, (torch.int64,))
    check_length("times", times, int(indptr[-1]), "edge")
    if types is not None:
        check_vector("types", types, TYPE_DTYPES)
        check_length("types", types, times.numel(), "edge")
    kinds = times.new_empty(0, dtype=torch.uint8) if types is None else types
    module = kernels("sampling.time_order", times, indptr=indptr, types=kinds)
    columns = as_int64(indptr, times), times.contiguous(), as_types(kinds, times)
    if module.is_in_order(*columns):
        return TimeOrder(times.contiguous(), None)
    order = buffers.empty_long_lived(times.numel(), torch.int64, times.device)
    rising = buffers.empty_long_lived(times.numel(), torch.int64, times.device)
    scratch = torch.empty(int(indptr.diff().max()) if times.is_cpu else 0, dtype=torch.int64, device="cpu")
    module.sort_by_time(*columns, order, rising, scratch)
    return TimeOrder(rising, order)


def link_sources(
    indptr: torch.Tensor, indices: torch.Tensor, order: torch.Tensor, num_nodes: int = 1 << 62
) -> torch.Tensor | None:
    """Combine the offset and the source of each edge into one value, so that a single random read finds both.

    Returns int64, one per edge: its offset in its column times 2**32, plus its source; or None if these are too large.
    On the CPU, `order` can be a view of it (see `linked_order`). This takes one pass over the edges, and 8 bytes per
    edge. Without it, mini-batches on an ogbn-products shaped graph that is not sorted by time take up to 1.22 times as
    long.

    Raises:
        ValueError: The arrays are not a valid graph, a source is not below `num_nodes`, or `order` is not a valid order
            of the edges.

    Example:
        >>> link_sources(torch.tensor([0, 2]), torch.tensor([5, 7]), torch.tensor([1, 0]))
        tensor([4294967303,          5])
    """
    check_vector("indices", indices)
    check_edge_places("order", indptr, order)
    check_length("indices", indices, order.numel(), "edge")
    lowest, highest = bounds(indices) if indices.numel() else (0, 0)
    if not 0 <= lowest <= highest < max(num_nodes, 1):
        raise edited()
    # Both have 32 bits; the offset is in the upper half, which has the sign bit.
    if highest >= 1 << 32 or (indices.numel() and int(indptr.diff().max()) > 1 << 31):
        return None
    links = buffers.empty_long_lived(order.numel(), torch.int64, order.device)
    module = kernels("sampling.time_order", order)
    module.link_sources(as_int64(indptr, order), indices.contiguous(), as_int64(order, order), links)
    return links


def check_edge_places(name: str, indptr: torch.Tensor, places: torch.Tensor) -> None:
    check_vector(name, places)
    check_columns("indptr", indptr, places.numel())
    degrees = indptr.diff()
    if bool(((places < 0) | (places >= torch.repeat_interleave(degrees, degrees))).any()):
        raise ValueError(f"{name} must hold the offset of each edge in its column, but one is out of range")


def check_links(indptr: torch.Tensor, links: torch.Tensor) -> None:
    check_vector("links", links, (torch.int64,))
    # The upper half is the offset in the column, the lower half the source.
    check_edge_places("links", indptr, links >> 32)
    check_ids("the sources in links", links & ((1 << 32) - 1), indptr.numel() - 1)


def linked_order(links: torch.Tensor) -> torch.Tensor:
    """Return the order that links were computed from, as a view of the links."""
    check_vector("links", links, (torch.int64,))
    return links.view(torch.int32)[UPPER_HALF::2]


def places_in_order(indptr: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Convert an order, as `order_by_time` returns it, from offsets in columns to positions in the graph.

    Raises:
        ValueError: `indptr` is not valid, or the order has another number of edges.

    Example:
        >>> places_in_order(torch.tensor([0, 2, 4]), torch.tensor([1, 0, 0, 1]))
        tensor([1, 0, 2, 3])
    """
    check_columns("indptr", indptr)
    check_vector("order", order)
    check_length("order", order, int(indptr[-1]), "edge")
    places = torch.empty(order.numel(), dtype=torch.int64, device=order.device)
    kernels("sampling.time_order", order, indptr=indptr).places_in_order(indptr, order, places)
    return places
