"""PyG's `LinkNeighborLoader` on this package's stages."""

from collections.abc import Callable
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.link_loader import LinkLoader


class LinkNeighborLoader(LinkLoader):
    """Makes mini-batches of the sampled neighbourhoods of edges, as `torch_geometric.loader.LinkNeighborLoader` does.

    The arguments, their order and the batches are PyG's; docs/from-pyg.md has a table. `LinkLoader` says what the data
    hold of the seeds, and `NeighborLoader` how neighbours are sampled, and what a loader offers beyond PyG's.

    Args:
        num_neighbors: One number per hop, the seeds' own hop first, a dict of such lists by edge type, or a
            `NumNeighbors`.
        edge_label_index: The seeds; see `LinkLoader`.
        edge_label: The label of each seed.
        edge_label_time: The time of each seed: its neighbours and negatives are not later.
        replace: As for `NeighborLoader`; so are subgraph_type, temporal_strategy, weight_attr, is_sorted,
            neighbor_sampler and directed.
        disjoint: Whether each end of each seed has nodes of its own.
        neg_sampling: A `NegativeSampling`, a mode, or (mode, amount).
        neg_sampling_ratio: The amount of binary negatives.
        time_attr: The name of whole numbers of nodes or edges; needs `edge_label_time`, and the other way around.
        kwargs: See `LinkLoader`, as for the arguments that are not listed here.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
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
        if (edge_label_time is None) != (time_attr is None):
            given = "time_attr" if edge_label_time is None else "edge_label_time"
            raise ValueError(f"edge_label_time and time_attr go together, but only {given} is given; give both")
        if neighbor_sampler is None:
            neighbor_sampler = samplers.NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed,
            )  # fmt: skip
        super().__init__(
            data, neighbor_sampler, edge_label_index, edge_label, edge_label_time, neg_sampling, neg_sampling_ratio,
            transform, transform_sampler_output, filter_per_worker, **kwargs,
        )  # fmt: skip
