"""PyG's data as a graph with features, and back."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import from_pyg, to_pyg

data = pytest.importorskip("torch_geometric.data")

EDGES = torch.tensor([[3, 0, 2], [1, 2, 1]])


def plain() -> Any:
    return data.Data(
        x=torch.rand(4, 2), edge_index=EDGES, y=torch.tensor([5, 6, 7, 8]), w=torch.tensor([0.5, 0.0, 2.0]),
        edge_attr=torch.rand(3, 2), train_mask=torch.tensor([True, False, True, True]), moved_index=EDGES, note="text",
    )  # fmt: skip


def typed() -> Any:
    made = data.HeteroData()
    made["user"].num_nodes = 4
    made["item"].x = torch.rand(3, 2)
    made["user"].y = torch.arange(4)
    made["user", "likes", "item"].edge_index = torch.tensor([[3, 0, 3], [1, 2, 0]])
    made["user", "likes", "item"].at = torch.tensor([3, 1, 2])
    made["item", "near", "item"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    return made


def test_data_without_types_comes_back() -> None:
    given = plain()
    graph, features = from_pyg(given)
    assert features.read("node", None, "y").tolist() == [[5], [6], [7], [8]]
    assert features.read("edge", None, "w").tolist() == [[0.5], [0.0], [2.0]]
    assert features.read("node", None, "x").data_ptr() == given.x.data_ptr()
    found = to_pyg(graph, features)
    assert set(given.keys()) - set(found.keys()) == {"note"}
    for name in ("x", "edge_index", "y", "w", "edge_attr", "train_mask", "moved_index"):
        assert torch.equal(found[name], given[name]), name
    assert found.num_nodes == 4


def test_data_with_types_come_back() -> None:
    given = typed()
    graph, features = from_pyg(given, time_attr="at")
    assert graph.num_nodes == {"item": 3, "user": 4}
    found = to_pyg(graph, features)
    assert {kind: set(store.keys()) | {"num_nodes"} for kind, store in found.node_items()} == {
        "item": {"x", "num_nodes"},
        "user": {"y", "num_nodes"},
    }
    likes = found["user", "likes", "item"]
    assert torch.equal(likes.edge_index, given["user", "likes", "item"].edge_index)
    assert likes.at.tolist() == [3, 1, 2]
    assert found["item", "near", "item"].edge_index.shape == (2, 0)
    assert torch.equal(found["item"].x, given["item"].x)
    assert found["user"].y.tolist() == [0, 1, 2, 3]


def test_attributes_of_a_graph_go_to_their_types_in_the_order_of_edge_ids() -> None:
    lists = {"b:r:a": ([1, 0, 1], [0, 1, 1]), "a:s:b": ([1], [0])}
    weights = {"b:r:a": torch.tensor([1.0, 2.0, 3.0]), "a:s:b": torch.tensor([4.0])}
    times = {"a": torch.tensor([10, 11]), "b": torch.tensor([20, 21])}
    graph = gf.from_coo(lists, {"a": 2, "b": 2}, node_attributes={"time": times}, edge_attributes={"w": weights})
    found = to_pyg(graph)
    assert {kind: found[kind].time.tolist() for kind in "ab"} == {"a": [10, 11], "b": [20, 21]}
    assert found["b", "r", "a"].w.tolist() == [1, 2, 3]
    assert found["b", "r", "a"].edge_index.tolist() == [[1, 0, 1], [0, 1, 1]]
    again, _ = from_pyg(found, time_attr="time", weight_attr="w")
    assert torch.equal(again.indices, graph.indices)
    assert torch.equal(again.edge_attributes["w"], graph.edge_attributes["w"])
    assert torch.equal(again.node_attributes["time"], graph.node_attributes["time"])


def test_times_and_weights_that_types_lack_are_not_made_up() -> None:
    given = typed()
    given["item", "near", "item"].edge_index = torch.tensor([[0], [1]])
    given["user", "likes", "item"].w = torch.tensor([0.5, 1.0, 2.0])
    found = to_pyg(*from_pyg(given, time_attr="at", weight_attr="w"))
    assert set(found["item", "near", "item"].keys()) == {"edge_index"}
    assert found["user", "likes", "item"].w.tolist() == [0.5, 1, 2]
