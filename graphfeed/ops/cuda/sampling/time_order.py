"""Sort the edges of each column by time, with torch's stable sorts."""

import torch


def is_in_order(indptr, times, types):
    falls = (times[1:] < times[:-1]) & ~_begins(indptr, times, types)[1:]
    return not bool(falls.any())


def sort_by_time(indptr, times, types, order, rising, scratch):
    del scratch
    runs = _begins(indptr, times, types).cumsum(0)
    # Sort by time and then by run, both stably, so that ties keep their order.
    by_time = torch.sort(times, stable=True).indices
    places = by_time[torch.sort(runs[by_time], stable=True).indices]
    rising.copy_(times[places])
    order.copy_(places - _starts(indptr, order))


def places_in_order(indptr, order, places):
    places.copy_(order + _starts(indptr, order))


def _begins(indptr, times, types):
    """Mark the first edge of each column, or of each edge type in it."""
    begins = torch.zeros(times.numel() + 1, dtype=torch.bool, device=times.device)
    begins.index_fill_(0, indptr.to(times.device, torch.int64), True)
    begins = begins[:-1]
    if types.numel() > 0:
        begins[1:] |= types[1:] != types[:-1]
    return begins


def _starts(indptr, order):
    starts = indptr.to(order.device)
    return torch.repeat_interleave(starts[:-1], starts.diff(), output_size=order.numel())
