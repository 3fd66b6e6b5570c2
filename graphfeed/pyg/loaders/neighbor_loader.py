"""PyG's loader of sampled neighbourhoods of nodes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.node_loader import NodeLoader


class NeighborLoader(NodeLoader):
    """Yields mini-batches of the sampled neighbourhoods of nodes, as `torch_geometric.loader.NeighborLoader` does.

    The arguments, their order and the batches are PyG's; docs/from-pyg.md has a table. The loader runs a pipeline of
    this package's stages (`pipeline`, `explain()`). Mini-batches are bit-identical for any number and kind of workers,
    `iter()` starts the next epoch, and `state_dict()` and `load_state_dict()` resume in the middle of an epoch. Neither
    pyg-lib nor torch-sparse is needed.

    The in-edges of a node are sampled once, in the hop after the one that reached it. Nodes are in the order in which
    hops reach them, seeds first; edges are in the order of the hops. With full fan-outs, mini-batches equal PyG's.
    Differences: edges of weight 0 are never drawn, times need not be sorted, and draws do not depend on threads.

    Args:
        num_neighbors: One number per hop, the seeds' own hop first, a dict of such lists by edge type, or a
            `NumNeighbors`. -1 selects all neighbours, 0 none. With types, a number applies to each edge type. With an
            empty list, a mini-batch has only the seeds.
        input_time: The time of each seed, instead of the node's time.
        replace: Whether an edge may be drawn more than once.
        subgraph_type: "directional" has the sampled edges; "bidirectional" also the reverse of each; "induced" has all
            edges between the nodes, as `directed=False` does.
        disjoint: Whether each seed has its own tree, given by `batch` for each node. Implied by temporal sampling.
        temporal_strategy: "uniform", or "last" for the most recent neighbours.
        time_attr: Name of the integer times of nodes or edges; no neighbour that is later than the seed is sampled.
        weight_attr: Name of the edge weights.
        is_sorted: Has no effect: a counting sort groups edges by destination.
        neighbor_sampler: A sampler that replaces the arguments about sampling.
        kwargs: See `NodeLoader`, as for arguments not listed here.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        **kwargs: Any,
    ) -> None:
        if input_time is not None and time_attr is None:
            raise ValueError("input_time needs time_attr, the name of the times of nodes or edges; give both")
        if neighbor_sampler is None:
            neighbor_sampler = samplers.NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed,
            )  # fmt: skip
        super().__init__(
            data, neighbor_sampler, input_nodes, input_time, transform, transform_sampler_output, filter_per_worker,
            **kwargs,
        )  # fmt: skip
