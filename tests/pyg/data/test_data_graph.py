"""What loaders read of data: the graph, its times and weights, and the features."""

from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, from_pyg
from graphfeed.pyg.data.tables import Tables, tables_of
from tests.pyg.neighborhood import KINDS, SIZES, heterogeneous, homogeneous

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
