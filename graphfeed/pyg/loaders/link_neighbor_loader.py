"""PyG's loader of sampled neighbourhoods of edges."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.link_loader import LinkLoader


class LinkNeighborLoader(LinkLoader):
    """Yields mini-batches of the sampled neighbourhoods of edges, as `torch_geometric.loader.LinkNeighborLoader` does.

    The arguments, their order and the batches are PyG's. `LinkLoader` describes the attributes of the seeds,
    `NeighborLoader` how neighbours are sampled, and what a loader offers in addition to PyG's.

    Args:
        num_neighbors: As for `NeighborLoader`, the seeds' own hop first; so are replace, subgraph_type,
            temporal_strategy, weight_attr, is_sorted, neighbor_sampler and directed.
        edge_label_time: The time of each seed; its neighbours and negatives are not later.
        disjoint: Whether each endpoint of each seed has its own sampled tree.
        time_attr: Name of the integer times of nodes or edges; must be given together with `edge_label_time`.
        kwargs: See `LinkLoader`, as for arguments not listed here.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | Mapping[Any, torch.Tensor] | None = None,
        edge_label_time: torch.Tensor | Mapping[Any, torch.Tensor] | None = None,
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
