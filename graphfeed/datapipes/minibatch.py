"""What flows between stages."""

from dataclasses import dataclass, field
from typing import Any

import torch

from graphfeed.ops import Key
from graphfeed.storage.sampled_subgraph import ByType, SampledSubgraph, move


@dataclass(repr=False, eq=False)
class MiniBatch:
    """Seeds, the subgraphs sampled around them, and their features. Every field is None until a stage fills it.

    A value is a tensor for a graph of one type, else a dict by node type (seeds that are nodes, input nodes) or by
    edge type "src:rel:dst" (seeds that are edges).
    """

    labels: ByType | None = None
    """Aligned with the seeds."""
    seeds: ByType | None = None
    """Node ids, shape (N,), or edges, shape (N, 2), or hyperlinks, shape (N, k)."""
    indexes: ByType | None = None
    """Which query each seed belongs to."""
    sampled_subgraphs: list[SampledSubgraph] | None = None
    """One a layer, the outermost first."""
    input_nodes: ByType | None = None
    """Ids of the outermost layer's rows: what needs features."""
    node_features: dict[Any, torch.Tensor] | None = None
    """By name; by (node type, name) if the graph has types."""
    edge_features: list[dict[Any, torch.Tensor]] | None = None
    """One a layer, each by name, or by (edge type, name)."""
    compacted_seeds: ByType | None = None
    """Edge seeds as positions in the nodes that the innermost layer's columns are."""
    timestamp: ByType | None = field(default=None, kw_only=True)
    """Time of each seed, for temporal sampling."""
    key: Key | None = field(default=None, kw_only=True)
    """Which mini-batch this is; what random stages draw from."""

    def node_ids(self) -> ByType | None:
        """Return the ids whose features are needed: `input_nodes`."""
        return self.input_nodes

    def num_layers(self) -> int:
        """Return the number of sampled layers, 0 before sampling."""
        return len(self.sampled_subgraphs or ())

    def edge_ids(self, layer_id: int) -> ByType | None:
        """Return the ids of a layer's edges."""
        if not self.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before")
        return self.sampled_subgraphs[layer_id].original_edge_ids

    def set_node_features(self, node_features: dict[Any, torch.Tensor]) -> None:
        """Set the node features."""
        self.node_features = node_features

    def set_edge_features(self, edge_features: list[dict[Any, torch.Tensor]]) -> None:
        """Set the edge features."""
        self.edge_features = edge_features

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "MiniBatch":
        """Move every tensor, also of attributes that are no fields, to a device; changes and returns this object."""
        for name, value in vars(self).items():
            if name != "key":
                setattr(self, name, move(value, device, non_blocking=non_blocking))
        return self

    def __repr__(self) -> str:
        """Return the attributes, one a line; nothing is computed or changed for it."""
        lines = [f"{name}={value}," for name, value in vars(self).items() if value is not None]
        return "\n".join(["MiniBatch(", *(f"    {line}".replace("\n", "\n    ") for line in lines), ")"])
