"""Sample and relabel all hops of a mini-batch by LABOR, on a graph of one type."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, ensure_index
from graphfeed.ops.sampling.labor_sample_neighbors import check_pairs, labor_sample_neighbors
from graphfeed.ops.sampling.sample_hops import SampledHop, open_hops, run_hops, stack_hops

NO_INDEX = HighDegreeIndex(*(torch.empty(0, dtype=torch.int64) for _ in range(4)))


def labor_sample_hops(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[tuple[int, int]],
    *,
    switch_threshold: int = 0,
    replace: bool = False,
    cumulative: torch.Tensor | None = None,
    index: HighDegreeIndex | None = None,
) -> list[SampledHop] | None:
    """Sample hop after hop by `labor_sample_neighbors`, each from all nodes found so far, and relabel.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64.
        seeds: Node ids, of the dtype of `indices`.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The two keys of each hop.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them.
        index: What `build_high_degree_index` returns for the graph. It saves reading large columns and changes no
            result. It is of use on the CPU, without weights and without replacement.

    Returns:
        A `SampledHop` per hop, the seeds' own first; None if the graph's dense node map would exceed the memory limit.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, or the arrays are not those of
            a graph.
    """
    graph = open_hops((indptr, indices, cumulative), seeds, fanouts, keys, "pairs", replace)
    if index is not None:
        ensure_index(index)
    check_pairs(keys)
    if on_gpu(seeds):
        options: Any = {"switch_threshold": switch_threshold, "replace": replace, "cumulative": cumulative}
        sample = partial(labor_sample_neighbors, indptr, indices, **options)
        return stack_hops(sample, (indptr, indices), seeds, fanouts, keys)
    module = kernels("sampling.labor_sample_hops", seeds, indptr=indptr, indices=indices)
    by_degree = as_kernel_args(seeds, *(NO_INDEX if index is None else index))
    hop_keys, hop_fanouts = np.array(keys, dtype=np.uint64), np.array(fanouts, dtype=np.int64)
    wanted = hop_fanouts, replace, hop_keys, np.uint64(switch_threshold)
    return run_hops(partial(module.labor_sample_hops, graph, by_degree, *wanted), indptr, indices, seeds, fanouts)
