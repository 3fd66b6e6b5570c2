"""Kernels that relabel the nodes of a mini-batch to positions, in order of first appearance."""

import torch

from graphfeed.ops.cuda.launch import upload
from graphfeed.ops.cuda.structure.relabel import HopNodes, HopTypes, relabel, relabel_by_type


def compact(seeds, neighbors, parts, keys, node_map, rows, row_starts, local):
    """CUDA version of the CPU kernel; `parts` and `row_starts` are on the CPU. Synchronizes once."""
    del keys, node_map
    nodes = HopNodes(seeds, neighbors, neighbors.numel())
    if row_starts.numel() == 2 and parts[-1].numel() == 1:
        row_starts[0], starts = 0, torch.zeros(2, dtype=torch.int64, device=seeds.device)
        relabel(nodes, rows, local, None, starts, None)
        row_starts[1:].copy_(starts[1:])
        return
    joined = [*parts, torch.empty_like(parts[-1]), row_starts]
    tables = upload(torch.cat(joined), seeds.device).split([part.numel() for part in joined])
    seed_starts, neighbor_starts, sources, shifts, starts = tables
    types = HopTypes(seed_starts, sources, neighbor_starts, shifts, starts)
    relabel_by_type(nodes, types, rows, None, local)
    row_starts.copy_(starts)
