"""What loaders read of data: the graph, its times and weights, and the features; and graphs as data, and back."""

from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, from_pyg, to_pyg
from graphfeed.pyg.data.tables import Tables, import_pyg, tables_of
from tests.pyg.neighborhood import KINDS, SIZES, heterogeneous, homogeneous

PYG = import_pyg("torch_geometric.data", "tests")
LIKES, TO, RATES = ("user", "likes", "item"), ("user", "to", "item"), ("user", "rates", "item")


def first(data: Any, seeds: Any = None, **options: Any) -> Any:
    return next(iter(NeighborLoader(data, [2], seeds, **{"batch_size": 4, **options})))


def test_types_without_a_time_are_always_there_and_those_without_weights_weigh_1() -> None:
    data = heterogeneous()
    del data["item"].time
    data["user", "knows", "user"].weight = torch.arange(90)
    graph, _ = from_pyg(data, time_attr="time", weight_attr="weight")
    assert int(graph.node_attribute("time").min()) == torch.iinfo(torch.int64).min
    weights = graph.edge_attribute("weight")
    assert weights.dtype == torch.float64
    assert sorted(weights.tolist()) == sorted([*range(90), *[1] * 240])


@pytest.mark.parametrize("edge_types", [(), (LIKES,)])
def test_without_edges_mini_batches_are_the_seeds(edge_types: tuple[Any, ...]) -> None:
    data, typed = homogeneous(), heterogeneous()
    del data.edge_index
    for edge_type in typed.edge_types:
        del typed[edge_type]
    for edge_type in edge_types:
        typed[edge_type].label = torch.empty(0)
    every: tuple[Any, ...] = ({}, {"disjoint": True}, {"time_attr": "time"}, {"subgraph_type": "induced"})
    cases: Any = ((data, torch.tensor([7, 3])), (typed, ("user", torch.tensor([7, 3]))))
    for given, seeds, options in ((*case, options) for case in cases for options in every):
        batch = next(iter(NeighborLoader(given, [-1, 2], seeds, batch_size=2, **options)))
        own = batch if given is data else batch["user"]
        assert own.n_id.tolist() == [7, 3], options
        assert torch.equal(own.x, (data if given is data else typed["user"]).x[[7, 3]]), options
        assert all(store.edge_index.shape == (2, 0) for store in batch.edge_stores), options
        assert given is data or batch.edge_types == list(edge_types), options


def test_links_may_be_given_where_there_are_no_edges() -> None:
    data = homogeneous()
    del data.edge_index
    links = torch.tensor([[7, 3], [3, 5]])
    batch = next(iter(LinkNeighborLoader(data, [2], edge_label_index=links, neg_sampling="binary", batch_size=2)))
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :2]], links)


def test_what_belongs_to_nodes_and_edges_is_fetched_and_the_rest_stays() -> None:
    data = homogeneous()
    data.array = np.arange(60)
    data.some_index = torch.arange(120).view(2, 60)
    batch = first(data)
    assert set(data.keys()) <= set(batch.keys())
    assert batch.name == "random"
    for name in ("x", "y", "time", "train_mask"):
        assert torch.equal(batch[name], data[name][batch.n_id]), name
    for name in ("edge_attr", "weight", "edge_time"):
        assert torch.equal(batch[name], data[name][batch.e_id]), name
    assert torch.equal(batch.array, batch.n_id)
    assert torch.equal(batch.some_index, data.some_index[:, batch.n_id])


def test_what_belongs_to_a_whole_graph_with_types_stays() -> None:
    data = heterogeneous()
    data.meta, data.scale = "hello", torch.tensor([3.0])
    batch = first(data, "user")
    assert (batch.meta, batch.scale.item()) == ("hello", 3.0)
    assert torch.equal(batch["user"].x, data["user"].x[batch["user"].n_id])
    assert {kind: set(store.keys()) & {"x", "y", "time"} for kind, store in batch.node_items()} == {
        "user": {"x", "y", "time"},
        "item": {"x", "time"},
    }


def test_a_number_of_nodes_is_enough() -> None:
    data = heterogeneous()
    del data["item"].x, data["item"].time
    data["item"].num_nodes = 25
    assert from_pyg(data)[0].num_nodes == {"user": 40, "item": 25}


def test_tables_are_those_of_each_type_or_one_for_both() -> None:
    typed, plain = heterogeneous(), homogeneous()
    plain.node_types = 3  # any attribute may have any name
    found = tables_of(typed)
    assert [list(found.nodes), list(found.edges)] == [list(SIZES), list(KINDS)]
    found = tables_of(plain)
    assert not found.typed
    assert found.nodes[None] is found.edges[None]
    assert tables_of(found) is found


def test_an_edge_type_may_be_given_in_part() -> None:
    cases: list[tuple[list[tuple[str, str, str]], Any, Any]] = [
        ([LIKES], LIKES, LIKES),
        ([LIKES], ("user", "item"), LIKES),
        ([LIKES], ["likes"], LIKES),
        ([LIKES], ("item", "user"), None),
        ([LIKES, RATES], ("user", "item"), None),
        ([LIKES, RATES, TO], ("user", "item"), TO),
    ]
    for known, given, found in cases:
        assert Tables({}, dict.fromkeys(known)).edge_type(given) == found, (known, given)


EDGES = torch.tensor([[3, 0, 2], [1, 2, 1]])


def plain() -> Any:
    return PYG.Data(
        x=torch.rand(4, 2), edge_index=EDGES, y=torch.tensor([5, 6, 7, 8]), w=torch.tensor([0.5, 0.0, 2.0]),
        edge_attr=torch.rand(3, 2), train_mask=torch.tensor([True, False, True, True]), moved_index=EDGES, note="text",
    )  # fmt: skip


def typed() -> Any:
    made = PYG.HeteroData()
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
