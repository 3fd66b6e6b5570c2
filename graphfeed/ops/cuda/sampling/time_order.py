"""The edges of each column in the order of their times, by torch's own sorts, which keep the order of equals."""

import torch


def is_in_order(indptr, times, types):
    """Tell whether the times of each column, or of each type in it, never fall."""
    falls = (times[1:] < times[:-1]) & ~_begins(indptr, times, types)[1:]
    return not bool(falls.any())


def sort_by_time(indptr, times, types, order, rising):
    """Write the order of each column's edges by time, of equal times by place; and the times in that order."""
    runs = _begins(indptr, times, types).cumsum(0)
    by_time = torch.sort(times, stable=True).indices
    places = by_time[torch.sort(runs[by_time], stable=True).indices]
    rising.copy_(times[places])
    order.copy_(places - _starts(indptr, order))


def places_in_order(indptr, order, places):
    """Write where each edge of the order stands in the graph."""
    places.copy_(order + _starts(indptr, order))


def _begins(indptr, times, types):
    """Mark the edges that begin a column, or a type in one."""
    begins = torch.zeros(times.numel() + 1, dtype=torch.bool, device=times.device)
    begins.index_fill_(0, indptr.to(times.device, torch.int64), True)
    begins = begins[:-1]
    if types.numel() > 0:
        begins[1:] |= types[1:] != types[:-1]
    return begins


def _starts(indptr, order):
    """Return for each edge where its column starts."""
    starts = indptr.to(order.device)
    return torch.repeat_interleave(starts[:-1], starts.diff(), output_size=order.numel())
