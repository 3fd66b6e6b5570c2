"""What flows between stages."""

from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

import torch

from graphfeed.ops import Key
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.memory.tensor_repr import tensor_repr
from graphfeed.storage.memory.tensor_tree import all_pinned, move


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
    """One per hop, the outermost first."""
    input_nodes: ByType | None = None
    """Ids of the outermost layer's rows: what needs features."""
    node_features: dict[Any, torch.Tensor] | None = None
    """By name; by (node type, name) if the graph has types."""
    edge_features: list[dict[Any, torch.Tensor]] | None = None
    """One per hop, each by name, or by (edge type, name)."""
    compacted_seeds: ByType | None = None
    """Edge seeds as positions in the nodes that the innermost layer's columns are."""
    timestamp: ByType | None = field(default=None, kw_only=True)
    """Time of each seed, for temporal sampling; of edge seeds one a row, or one a node in their shape."""
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

    @property
    def blocks(self) -> list[Any] | None:
        """The subgraphs as DGL's blocks, made anew at each access; None before sampling."""
        return None if self.sampled_subgraphs is None else self.compute_blocks()

    def compute_blocks(self) -> list[Any]:
        """Return the subgraphs as DGL's blocks, the outermost first; nothing of the mini-batch changes.

        The first block's source nodes have their ids as `dgl.NID`, each block's edges theirs as `dgl.EID`.

        Raises:
            ImportError: DGL is not installed.
            ValueError: A subgraph without row or column ids.
        """
        blocks: list[Any] = import_module("graphfeed.interop.dgl").compute_blocks(self.sampled_subgraphs or [])
        return blocks

    def to_pyg_data(self) -> Any:
        """Return the mini-batch as a `torch_geometric.data.Data`, or `HeteroData` if the graph has types.

        The edges of all layers are put together, each once, as `edge_index`; layers can't be told apart any more.
        `n_id` are the ids of the nodes. A node feature is `x` if it is the only one of its type, else it keeps its
        name. Seeds that are nodes come first among the nodes: `batch_size` says how many there are, and `y` are their
        labels. For seeds that are edges there are `edge_label_index` and `edge_label`. Edge features are left out.

        Raises:
            ImportError: PyG is not installed.
            ValueError: Nothing was sampled.
        """
        return import_module("graphfeed.pyg.data").make_data(self)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "MiniBatch":
        """Move every tensor, also of attributes that are no fields, to a device; changes and returns this object.

        The device "pinned" is page-locked CPU memory.
        """
        for name, value in vars(self).items():
            if name != "key":
                setattr(self, name, move(value, device, non_blocking=non_blocking))
        return self

    def pin_memory(self) -> "MiniBatch":
        """Move every tensor to pinned memory; changes and returns this object."""
        return self.to("pinned")

    def is_pinned(self) -> bool:
        """Tell whether there are tensors and all lie in pinned memory."""
        return all_pinned(self)

    def __repr__(self) -> str:
        """Return the attributes, one a line, from the last letter to the first; nothing is computed or changed for it.

        Private ones are left out, and those that GraphBolt hasn't got where they are None. So are the blocks.
        """
        names = {name for name, value in vars(self).items() if value is not None} | FIELDS_SHOWN
        shown = sorted((name for name in names if not name.startswith("_")), reverse=True)
        return tensor_repr(type(self).__name__, {name: getattr(self, name) for name in shown})


FIELDS_SHOWN = {field.name for field in fields(MiniBatch) if not field.kw_only}
