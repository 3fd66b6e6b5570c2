"""Kernels for compressed sparse columns, as torch operations."""

import torch


def count_columns(destinations, indptr):
    # `indptr` is initialized with zeros.
    indptr[1:].scatter_add_(0, destinations.long(), indptr.new_ones(1).expand(destinations.numel()))
    indptr.cumsum_(0)


def fill_columns(destinations, starts, order):
    del starts
    # A stable sort doesn't need the column starts.
    order.copy_(torch.sort(destinations, stable=True).indices)


def find_falling(indptr):
    return _first((indptr.diff() < 0).nonzero())


def find_unsorted(indptr, types):
    starts = indptr.to(types.device)
    falls = (types[1:] < types[:-1]).nonzero().flatten() + 1
    columns = torch.searchsorted(starts, falls, right=True) - 1
    # At the start of a column, types may decrease.
    return _first(columns[starts[columns] < falls])


def find_misjoined(indptr, indices, types, first, after):
    sources, degrees = indices.to(types.device), indptr.to(types.device).diff()
    ends = torch.stack([sources, torch.repeat_interleave(degrees, output_size=types.numel())], 1)
    return _first(((ends < first[types.long()]) | (ends >= after[types.long()])).any(1).nonzero())


def expand_indptr(indptr, node_ids, out):
    out.copy_(torch.repeat_interleave(node_ids, indptr.diff(), output_size=out.numel()))


def indptr_edge_ids(indptr, offset, out):
    firsts = torch.repeat_interleave(offset - indptr[:-1], indptr.diff(), output_size=out.numel())
    out.copy_(firsts + torch.arange(out.numel(), device=out.device))


def _first(found):
    """Return the first of several numbers, or -1."""
    return int(found[0]) if len(found) else -1
