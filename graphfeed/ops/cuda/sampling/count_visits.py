"""Kernels that count visits of nodes."""

import torch

from graphfeed.ops.cuda.launch import launch


def count_visits(visits, top, starts, nodes, counts):
    """CUDA version of the CPU kernel."""
    rows, size = visits.shape
    if rows == 0 or top == 0:
        return
    numbers = torch.empty_like(visits)
    launch("count_runs", rows * size, visits, rows, size, numbers)
    # Stable, so that the smaller ids of equal numbers stay in front.
    numbers, order = torch.sort(numbers, dim=1, descending=True, stable=True)
    starts[1:] = (numbers > 0).sum(1).clamp_(max=top).cumsum_(0)
    launch("take_best", rows * top, visits, order, numbers, rows, size, top, starts, nodes, counts)
