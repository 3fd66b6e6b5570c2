"""Kernels that turn weights into fixed-point running sums."""

import torch

from graphfeed.ops.cuda.launch import launch


def cumulate_weights(indptr, weights, out):
    columns, edges = indptr.numel() - 1, out.numel()
    starts = indptr, indptr.itemsize
    given = (*starts, weights, weights.itemsize, columns, edges)
    largest = torch.zeros(columns, dtype=torch.int64, device=out.device)
    # All edges at once, so that a column of many edges takes no longer than as many columns.
    launch("find_largest_weights", edges, *given, largest)
    launch("weights_to_units", edges, *given, largest, out)
    # May exceed 64 bits and begin anew, which is lost in the difference.
    out.cumsum_(0)
    launch("sums_before_columns", columns, *starts, columns, out, largest)
    launch("begin_sums_anew", edges, *starts, columns, edges, largest, out)
