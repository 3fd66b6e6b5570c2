"""Sample and relabel all hops of a mini-batch, each node once, on a graph of one type."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.sampling.guides import GuidedSums, split_sums
from graphfeed.ops.sampling.sample_hops import SampledHop, open_hops, run_hops
from graphfeed.ops.sampling.sample_neighbors import make_table


def sample_new_hops(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    *,
    replace: bool = False,
    cumulative: torch.Tensor | GuidedSums | None = None,
) -> list[SampledHop] | None:
    """Sample as `sample_hops`, but in each hop only the nodes that the hop before added; on the CPU.

    The columns of a hop are all nodes known before it, as there; those that were sampled earlier have no edges.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64.
        seeds: Node ids, of the dtype of `indices`.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them, perhaps with guides to them.

    Returns:
        A `SampledHop` per hop, the seeds' own first; None if the graph's dense node map would exceed the memory limit.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, or the arrays are not those of
            a graph.
    """
    sums, guides = split_sums(cumulative)
    graph = open_hops((indptr, indices, sums), seeds, fanouts, keys, "numbers", replace)
    graph = (*graph, *as_kernel_args(seeds, guides))
    module = kernels("sampling.sample_new_hops", seeds, indptr=indptr, indices=indices)
    table = make_table(min(max(fanouts), indices.numel())).numpy()
    hop_keys, hop_fanouts = np.array(keys, dtype=np.uint64), np.array(fanouts, dtype=np.int64)
    run = partial(module.sample_new_hops, graph, hop_fanouts, replace, hop_keys, table)
    return run_hops(run, indptr, indices, seeds, fanouts)
