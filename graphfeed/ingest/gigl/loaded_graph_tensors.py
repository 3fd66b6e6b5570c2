"""The tensors of a graph read from TFRecords, under GiGL's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch

from graphfeed.ops.arguments import brief

EdgeType = tuple[str, str, str]
NODE_TYPE = "default_homogeneous_node_type"
"""GiGL's name for the nodes of a graph of one type."""
EDGE_TYPE = (NODE_TYPE, "to", NODE_TYPE)
POSITIVE, NEGATIVE = "gigl_positive", "gigl_negative"
"""Endings of the edge types that were labels."""

T = TypeVar("T")
Nodes = torch.Tensor | dict[str, torch.Tensor]
Edges = torch.Tensor | dict[EdgeType, torch.Tensor]


@dataclass
class LoadedGraphTensors:
    """GiGL 0.2.0's tensors of a graph, with its order of fields; dicts by type if there are several types.

    Example:
        >>> one, edges = torch.arange(2), torch.tensor([[0], [1]])
        >>> graph = LoadedGraphTensors(one, None, None, edges, None, positive_label=edges, negative_label=None)
        >>> graph.treat_labels_as_edges("out")
        >>> [relation for _, relation, _ in graph.edge_index]
        ['to', 'to_gigl_positive']
    """

    node_ids: Nodes
    """int64, (nodes,)."""
    node_features: Nodes | None
    node_labels: Nodes | None
    edge_index: Edges
    """int64, (2, edges)."""
    edge_features: Edges | None
    positive_label: Edges | None
    """int64, (2, labels): anchors and their targets."""
    negative_label: Edges | None
    edge_weights: Edges | None = None
    """(edges,): the feature that `weight_edge_feat_name` names."""
    node_quantized_features: Nodes | None = None
    """uint8, (nodes, bytes): packed features, unchanged from the files."""
    edge_quantized_features: Edges | None = None

    def treat_labels_as_edges(self, edge_dir: Literal["in", "out"]) -> None:
        """Turn the labels into edges of separate types, in place: `relation_gigl_positive` and `..._negative`.

        All tensors are dicts by type afterwards. An edge leads from the anchor to its target. With `edge_dir="in"`,
        where sampling follows edges backwards, it leads to the anchor.

        Raises:
            ValueError: There are no positive labels, or `edge_dir` is neither "in" nor "out".
        """
        if edge_dir not in ("in", "out"):
            raise ValueError(f"edge_dir must be 'in' or 'out', but is {brief(edge_dir)}")
        if self.positive_label is None:
            raise ValueError("positive_label is None, so there are no labels to treat as edges")
        edges = dict(tensors_by_type(self.edge_index, EDGE_TYPE))
        for labels, ending in ((self.positive_label, POSITIVE), (self.negative_label, NEGATIVE)):
            for (source, relation, destination), pairs in tensors_by_type(labels, EDGE_TYPE).items():
                if edge_dir == "out":
                    edges[source, f"{relation}_{ending}", destination] = pairs
                else:
                    edges[destination, f"{relation}_{ending}", source] = pairs.flip(0)
        self.node_ids, self.edge_index = tensors_by_type(self.node_ids, NODE_TYPE), edges
        self.positive_label = self.negative_label = None
        for name in ("node_features", "node_labels", "node_quantized_features"):
            setattr(self, name, tensors_by_type(getattr(self, name), NODE_TYPE) or None)
        for name in ("edge_features", "edge_weights", "edge_quantized_features"):
            setattr(self, name, tensors_by_type(getattr(self, name), EDGE_TYPE) or None)


def tensors_by_type(values: torch.Tensor | Mapping[T, torch.Tensor] | None, only: T) -> dict[T, torch.Tensor]:
    if values is None:
        return {}
    return {only: values} if isinstance(values, torch.Tensor) else dict(values)
