"""Kernel that looks up edges among pairs of nodes."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import launch


def match_pairs(indptr, indices, rows, destinations, pairs, ends, table, out):
    """Write the places of the edges that are among the pairs, ascending, and return how many there are as a tensor.

    `indices` are the sources' ids where there are no rows; `table` comes filled with -1.
    """
    del ends
    matches = torch.empty_like(out)
    mask = np.uint64(table.numel() - 1)
    launch("enter_pairs", pairs.shape[0], pairs, pairs.shape[0], table, mask)
    launch(
        "match_pairs", indices.numel(),
        indptr, indptr.itemsize, indices, indices.itemsize, rows, rows.itemsize, destinations, destinations.itemsize,
        pairs, table, mask, destinations.numel(), indices.numel(), matches,
    )  # fmt: skip
    before = matches.cumsum_(0)
    out.copy_(torch.searchsorted(before, torch.arange(1, out.numel() + 1, device=out.device)))
    return before[-1:]
