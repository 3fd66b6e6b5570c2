"""Two small graphs for manual inspection, one of them with types."""

import torch

from graphfeed.storage import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID

INDPTR = torch.tensor([0, 3, 4, 4, 8, 9])
INDICES = torch.tensor([1, 2, 3, 0, 0, 1, 2, 4, 3])
ALL = torch.tensor([-1])
KEY = 1234


def make_graph(**attributes: torch.Tensor) -> FusedCSCSamplingGraph:
    """Return 5 nodes with in-degrees 3, 1, 0, 4, 1."""
    return fused_csc_sampling_graph(INDPTR, INDICES, edge_attributes=attributes)


def make_typed_graph(edge_ids: bool = False, **weights: torch.Tensor) -> FusedCSCSamplingGraph:
    """Return users 0, 1 and items 2, 3, 4; the numbers of types don't follow the order of the dicts."""
    attributes = {**weights, ORIGINAL_EDGE_ID: torch.arange(10, 16)} if edge_ids else weights
    return fused_csc_sampling_graph(
        torch.tensor([0, 1, 4, 4, 4, 6]),
        torch.tensor([1, 0, 2, 3, 0, 1]),
        node_type_offset=torch.tensor([0, 2, 5]),
        type_per_edge=torch.tensor([0, 0, 2, 2, 1, 1], dtype=torch.uint8),
        node_type_to_id={"item": 1, "user": 0},
        edge_type_to_id={"item:liked_by:user": 2, "user:knows:user": 0, "user:likes:item": 1},
        edge_attributes=attributes,
    )
