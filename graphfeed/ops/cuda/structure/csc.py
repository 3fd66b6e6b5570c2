"""Kernels for compressed sparse columns."""

import torch

from graphfeed.ops.cuda.launch import launch


def count_columns(destinations, indptr):
    # `indptr` comes zeroed.
    launch("count_columns", destinations.numel(), destinations, destinations.itemsize, destinations.numel(), indptr[1:])
    indptr.cumsum_(0)


def fill_columns(destinations, starts, order):
    del starts
    # A stable sort does not need where columns start.
    order.copy_(torch.sort(destinations, stable=True).indices)


def find_falling(indptr):
    columns = indptr.numel() - 1
    return _least("find_falling", columns, indptr.device, indptr, indptr.itemsize, columns)


def find_unsorted(indptr, types):
    columns = indptr.numel() - 1
    arguments = indptr, indptr.itemsize, types, types.itemsize, columns, types.numel()
    return _least("find_unsorted", types.numel(), types.device, *arguments)


def find_misjoined(indptr, indices, types, first, after):
    columns = indptr.numel() - 1
    return _least(
        "find_misjoined", types.numel(), types.device,
        indptr, indptr.itemsize, indices, indices.itemsize, types, types.itemsize, first, after, columns, types.numel(),
    )  # fmt: skip


def expand_indptr(indptr, node_ids, out):
    out.copy_(torch.repeat_interleave(node_ids, indptr.diff(), output_size=out.numel()))


def indptr_edge_ids(indptr, offset, out):
    firsts = torch.repeat_interleave(offset - indptr[:-1], indptr.diff(), output_size=out.numel())
    out.copy_(firsts + torch.arange(out.numel(), device=out.device))


def _least(kernel, size, device, *arguments):
    """Return the smallest number that a kernel finds, or -1."""
    found = torch.full((1,), torch.iinfo(torch.int64).max, dtype=torch.int64, device=device)
    launch(kernel, size, *arguments, found)
    # Waits for the device.
    least = int(found)
    return -1 if least == torch.iinfo(torch.int64).max else least
