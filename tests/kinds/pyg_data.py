"""PyG data with values that identify their nodes and edges."""

import warnings
from typing import Any

import pytest
import torch

from tests.kinds.pipelines import random_edges

LIKES = "user:likes:item"


def classes() -> tuple[Any, Any]:
    """Return PyG's classes; skip the test if PyG is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of other packages on import are not ours
        module = pytest.importorskip("torch_geometric.data")
    return module.Data, module.HeteroData


def plain_data(num_nodes: int = 60, num_edges: int = 400) -> Any:
    ids, edges = torch.arange(num_nodes), torch.arange(num_edges)
    return classes()[0](
        num_nodes=num_nodes,
        edge_index=random_edges(num_nodes, num_nodes, num_edges, 0),
        x=ids[:, None] * torch.ones(1, 3),
        y=ids % 5,
        train_mask=ids % 2 == 0,
        time=ids * 7 % 31,
        edge_attr=edges[:, None] * torch.ones(1, 2),
        edge_weight=edges / 2,
    )


def hetero_data() -> Any:
    data = classes()[1]()
    for kind, count in (("user", 50), ("item", 20)):
        data[kind].num_nodes = count
        data[kind].x = 1000 * (kind == "item") + torch.arange(count)[:, None] * torch.ones(1, 3)
    data["user"].y = torch.arange(50) % 5
    edge_types = [("user", "likes", "item"), ("item", "liked_by", "user"), ("user", "knows", "user")]
    for number, (source, relation, end) in enumerate(edge_types):
        store = data[source, relation, end]
        store.edge_index = random_edges(data[source].num_nodes, data[end].num_nodes, 150, number)
        store.edge_attr = 1000 * number + torch.arange(150)[:, None] * torch.ones(1, 2)
        store.edge_time = torch.arange(150) * 37 % 101
    return data
