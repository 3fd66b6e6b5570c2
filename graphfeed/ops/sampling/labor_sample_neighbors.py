"""Sample in-edges of nodes together, so that the columns of a layer choose the same neighbours.

This is LABOR-0 of "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339),
as the sequential Poisson sampling of its appendix A.3.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.cached_edge_values import EdgeValues, values_of
from graphfeed.ops.sampling.high_degree_index import HubIndex
from graphfeed.ops.sampling.sample_hops import Layer, Outputs, expected_sizes, run_hops, stack_hops
from graphfeed.ops.sampling.sample_neighbors import NO_TYPES, NO_WEIGHTS, Picks, check_fanouts

NO_HUBS = HubIndex(*(torch.empty(0, dtype=torch.int64) for _ in range(4)))


def labor_sample_neighbors(
    indptr: torch.Tensor,
    indices: EdgeValues,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    *,
    share: int = 0,
    replace: bool = False,
    cumulative: EdgeValues | None = None,
    types: EdgeValues | None = None,
    num_types: int = 1,
    checked: bool = False,
) -> Picks:
    """Choose in-edges of each seed by variates that belong to the neighbours: LABOR-0.

    Neighbour t has one variate r(t), the hash of the key and its id, whichever column asks. A column takes the
    `fanout` edges of smallest r(t), or r(t) over weight, of equal ones the first. So each subset of a column is as
    likely as any other of its size, but columns with common neighbours choose the same ones, and parallel edges are
    chosen one after the other. With replacement each neighbour has a Poisson process, run at the edge's weight, and
    a column takes the first `fanout` events. An edge of weight 0 is never chosen; -1 takes each other edge once.

    Reads all edges of each column that has more than its fan-out; writes a column's picks in ascending order.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source of each edge, int32 or int64; this, weights and types may be `KeptEdges` of the seeds' columns.
        seeds: Node ids.
        fanouts: One number, or one per edge type.
        keys: Key of this hop (`Key.at`), and the one that follows it.
        share: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` gives them.
        types: Edge types, ascending inside each column; needed where `fanouts` has more than one number.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph; else they are looked through, and a GPU waited for.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a fan-out below -1, or a wrong number of them.
    """
    for name, vector in (("indptr", indptr), ("indices", values_of(indices)), ("seeds", seeds)):
        check_vector(name, vector)
    check_fanouts(fanouts, num_types, types)
    if not checked:
        check_ids("seeds", seeds, indptr.numel() - 1)
    weights, kinds = (NO_WEIGHTS if cumulative is None else cumulative), (NO_TYPES if types is None else types)
    arrays = {"indices": values_of(indices), "weights": values_of(weights), "types": values_of(kinds)}
    module = kernels("sampling.labor_sample_neighbors", seeds, indptr=indptr, **arrays)
    starts, sources, *edges = as_kernel_args(seeds, indptr, indices, weights, kinds)
    wanted = (*as_kernel_args(seeds, seeds.contiguous(), fanouts.to("cpu", torch.int64)), replace)
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    count = kernels("sampling.sample_neighbors", seeds).count_neighbors
    count(starts, *edges, *wanted, *as_kernel_args(seeds, offsets))
    positions = buffers.empty(int(offsets[-1]), torch.int64, seeds.device)
    module.fill_layer_neighbors(
        starts, sources, *edges, *wanted, np.array(keys, dtype=np.uint64), np.uint64(share),
        *as_kernel_args(seeds, offsets, positions),
    )  # fmt: skip
    return Picks(offsets, positions)


def labor_sample_hops(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[tuple[int, int]],
    *,
    share: int = 0,
    replace: bool = False,
    cumulative: torch.Tensor | None = None,
    hubs: HubIndex | None = None,
) -> list[Layer] | None:
    """Sample hop after hop by `labor_sample_neighbors`, each from all nodes found so far, and relabel.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64.
        seeds: Node ids, of the dtype of `indices`.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The two keys of each hop.
        share: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` gives them.
        hubs: What `index_hubs` makes of the graph: spares reading large columns, and changes no result. Of use on the
            CPU, without weights and replacement.

    Returns:
        A `Layer` a hop, the seeds' own first; None where the graph's dense node map would exceed the memory limit.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, or a fan-out below -1.
    """
    check_vector("indptr", indptr)
    check_vector("seeds", seeds, (indices.dtype,))
    if len(keys) != len(fanouts):
        raise ValueError(f"keys must hold {len(fanouts)} pairs, one a hop, but holds {len(keys)}")
    if min(fanouts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but hold {min(fanouts)}")
    if on_gpu(seeds):
        options: Any = {"share": share, "replace": replace, "cumulative": cumulative}
        sample = partial(labor_sample_neighbors, indptr, indices, **options)
        return stack_hops(sample, (indptr, indices), seeds, fanouts, keys)
    num_nodes = indptr.numel() - 1
    check_ids("seeds", seeds, num_nodes)
    module = kernels("sampling.labor_sample_neighbors", seeds, indptr=indptr, indices=indices)
    edges, rows = expected_sizes(num_nodes, indices.numel(), seeds.numel(), fanouts)
    out = Outputs(len(fanouts), seeds.numpy(), indptr.numpy().dtype, edges, rows)
    index = tuple(array.numpy() for array in (NO_HUBS if hubs is None else hubs))
    graph = (indptr.numpy(), indices.numpy(), (NO_WEIGHTS if cumulative is None else cumulative).numpy(), index)
    hop_fanouts = np.array(fanouts, dtype=np.int64)
    hop_keys = np.array(keys, dtype=np.uint64)

    def run(node_map: NDArray[np.int32], hop: int) -> int:
        reached: int = module.labor_sample_hops(
            *graph, hop_fanouts, replace, hop_keys, np.uint64(share), node_map, hop, *out.arrays
        )
        return reached

    return run_hops(run, out, len(fanouts), num_nodes)
