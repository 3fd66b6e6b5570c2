"""PyG's `NeighborLoader` on this package's stages."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.node_loader import NodeLoader


class NeighborLoader(NodeLoader):
    """Makes mini-batches of the sampled neighbourhoods of nodes, as `torch_geometric.loader.NeighborLoader` does.

    The arguments, their order and the batches are PyG's; docs/from-pyg.md has a table. Underneath is a pipeline of this
    package's stages (`pipeline`, `explain()`), run by its loader: mini-batches are the same bits for any number and
    kind of workers, `iter()` starts the next epoch, and `state_dict()` and `load_state_dict()` go on in the middle of
    one. No sampler of PyG's is needed, neither pyg-lib nor torch-sparse.

    Each node is sampled once, in the hop after the one that reached it. Nodes are in the order in which hops reach
    them, the seeds first; edges in that of the hops. With full fan-outs, mini-batches equal PyG's. What differs: a
    weight of 0 is never drawn, times need not be sorted, and no draw depends on threads.

    Args:
        num_neighbors: One number per hop, the seeds' own hop first, a dict of such lists by edge type, or a
            `NumNeighbors`. -1 takes all neighbours, 0 none. With types, a number holds for each edge type. Without a
            number, `[]`, the seeds are alone.
        input_nodes: The seeds; see `NodeLoader`.
        input_time: The time of each seed, in place of its own.
        replace: Whether an edge may be chosen more than once.
        subgraph_type: "directional" has the sampled edges; "bidirectional" also the reverse of each; "induced" has all
            edges between the nodes.
        disjoint: Whether each seed has nodes of its own, with `batch` saying to which seed a node belongs. Always so in
            time.
        temporal_strategy: "uniform", or "last" for the most recent neighbours.
        time_attr: The name of whole numbers of nodes or edges: nothing that is later than a seed is sampled for it.
        weight_attr: The name of edge weights.
        is_sorted: Has no effect: edges are grouped by destination by counting.
        neighbor_sampler: A sampler to use, instead of the arguments about sampling.
        directed: False stands for `subgraph_type="induced"`.
        kwargs: See `NodeLoader`, as for the arguments that are not listed here.
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
            raise ValueError("input_time needs time_attr, the name of the times of what is sampled; give both")
        if neighbor_sampler is None:
            neighbor_sampler = samplers.NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed,
            )  # fmt: skip
        super().__init__(
            data, neighbor_sampler, input_nodes, input_time, transform, transform_sampler_output, filter_per_worker,
            **kwargs,
        )  # fmt: skip
