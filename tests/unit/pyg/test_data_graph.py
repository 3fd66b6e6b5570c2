"""The graph of PyG's data, from edge lists and from an `EdgeIndex`."""

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import graphfeed as gf
from graphfeed.ingest import EdgeTable, Spec, Split, build_dataset
from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler, NodeLoader, from_pyg, to_pyg
from graphfeed.pyg.data import Tables, graph_of_data, import_pyg
from tests.kinds.neighborhood import heterogeneous, homogeneous, values_of
from tests.kinds.stores import sorted_data

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


def test_without_edges_mini_batches_are_the_seeds() -> None:
    for edge_types in [(), (LIKES,)]:
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


def check(index: Any, plain: torch.Tensor, size: tuple[int, int], order: str) -> None:
    assert index.sort_order == order
    assert index.sparse_size() == size
    index.validate()
    assert torch.equal(index.as_tensor(), plain)
    counts = torch.bincount(plain[int(order == "col")], minlength=size[int(order == "col")])
    assert torch.equal(index._indptr.diff(), counts)


def test_it_knows_its_size_its_order_and_its_pointers() -> None:
    data = homogeneous()
    for make, subgraph_type in product(
        (NeighborLoader, LinkNeighborLoader), ("directional", "bidirectional", "induced")
    ):
        options: dict[str, Any] = {"batch_size": 8, "seed": 0, "subgraph_type": subgraph_type}
        plain, batch = (next(iter(make(data, [3, 2], as_edge_index=own, **options))) for own in (False, True))
        assert type(plain.edge_index) is torch.Tensor
        assert plain.edge_index.shape[1] > 8
        check(batch.edge_index, plain.edge_index, (len(batch.n_id),) * 2, "col")


def test_with_types_and_the_other_way_around() -> None:
    data = heterogeneous()
    sampler = NeighborSampler(data, [3, 2], sample_direction="backward")
    cases: Any = (
        (lambda **more: NeighborLoader(data, [3, 2], "user", batch_size=8, seed=0, **more), "col"),
        (lambda **more: NodeLoader(data, sampler, "user", batch_size=8, seed=0, **more), "row"),
    )
    for make, order in cases:
        plain, batch = next(iter(make())), next(iter(make(as_edge_index=True)))
        for kind in data.edge_types:
            size = (len(batch[kind[0]].n_id), len(batch[kind[2]].n_id))
            check(batch[kind].edge_index, plain[kind].edge_index, size, order)


def test_edges_that_a_function_mixed_up_have_no_order() -> None:
    def turn_around(output: Any) -> Any:
        output.row, output.col = output.row.flip(0), output.col.flip(0)
        return output

    options: dict[str, Any] = {"batch_size": 8, "as_edge_index": True, "transform_sampler_output": turn_around}
    batch = next(iter(NeighborLoader(homogeneous(), [3, 2], **options)))
    assert (batch.edge_index.sort_order, batch.edge_index._indptr) == (None, None)


def test_a_layer_of_pygs_gives_the_same() -> None:
    layers = import_pyg("torch_geometric.nn", "tests")
    options: dict[str, Any] = {"batch_size": 8, "seed": 0}
    plain, batch = (
        next(iter(NeighborLoader(homogeneous(), [3, 2], as_edge_index=own, **options))) for own in (False, True)
    )
    layer = layers.SAGEConv(3, 4)
    with torch.no_grad():
        expected = layer(plain.x, plain.edge_index)
        assert torch.allclose(layer(batch.x, batch.edge_index), expected, atol=1e-5)
    trim = import_pyg("torch_geometric.utils", "tests").trim_to_layer
    sizes = (batch.num_sampled_nodes, batch.num_sampled_edges)
    _, trimmed, _ = trim(1, *sizes, batch.x, batch.edge_index)
    assert torch.equal(trimmed.as_tensor(), trim(1, *sizes, plain.x, plain.edge_index)[1])
    trimmed.validate()


def with_edge_index(layout: str, **options: Any) -> tuple[Any, Any]:
    """Return data with an `EdgeIndex`, and the same with a plain tensor."""
    plain, data = sorted_data(False, layout), sorted_data(False, layout)
    order = {"csc": "col", "csr": "row", "coo": None}[layout]
    data.edge_index = import_pyg("torch_geometric", "tests").EdgeIndex(plain.edge_index, sort_order=order, **options)
    return data, plain


def test_mini_batches_are_those_of_a_plain_tensor() -> None:
    for layout in ["coo", "csc", "csr"]:

        def batches(given: Any) -> list[Any]:
            backward = NeighborSampler(given, [2, 2], sample_direction="backward")
            loaders: list[Any] = [
                NeighborLoader(given, [2, 2], batch_size=20, seed=0),
                NeighborLoader(given, [2, 2], None, torch.arange(60), batch_size=20, seed=0, time_attr="edge_time"),
                NodeLoader(given, backward, batch_size=20, seed=0),
                LinkNeighborLoader(given, [2], batch_size=50, seed=0),
            ]
            return [values_of(batch) for loader in loaders for batch in loader]

        expected = batches(with_edge_index(layout)[1])
        for size, cached in product(((60, 60), None), (False, True)):
            data, _ = with_edge_index(layout, sparse_size=size)
            if cached:
                data.edge_index.fill_cache_()
            assert batches(data) == expected, (size, cached)


def test_sorted_edges_are_not_copied() -> None:
    by_col, by_row = with_edge_index("csc", sparse_size=(60, 60))[0], with_edge_index("csr", sparse_size=(60, 60))[0]
    graph = graph_of_data(by_col).graph
    assert graph.indices.data_ptr() == by_col.edge_index.as_tensor()[0].data_ptr()
    assert graph.csc_indptr.data_ptr() == by_col.edge_index.get_indptr().data_ptr()
    reverse = graph_of_data(by_row, reverse=True).graph
    assert reverse.indices.data_ptr() == by_row.edge_index.as_tensor()[1].data_ptr()


def test_nodes_behind_the_last_one_with_a_column_have_no_edges() -> None:
    data, plain = with_edge_index("csc", sparse_size=(60, 60))
    given = type(data)(edge_index=data.edge_index, num_nodes=70)
    (batch,) = NeighborLoader(given, [-1], torch.tensor([65, 3]), batch_size=2)
    assert batch.n_id[:2].tolist() == [65, 3]
    assert batch.e_id.tolist() == (plain.edge_index[1] == 3).nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("with_types", [True, False])
def test_features_of_edges_that_the_graph_lacks_are_left_out(with_types: bool) -> None:
    kind = "user:buys:item" if with_types else "buys"
    rows = {"source": [2, 0, 1, 0], "destination": [1, 1, 0, 0], "amount": [5.0, 6, 7, 8], "at": [3, 9, 1, 2]}
    split = Split(time="at", train_until=5, validation_until=6)
    edges = EdgeTable(pa.table(rows), features={"amount": "amount"}, split=split, training_graph=True)
    dataset = build_dataset(Spec({kind: edges}))
    found = to_pyg(dataset.graph, dataset.feature)
    own = found["user", "buys", "item"] if with_types else found
    assert own.edge_index.tolist() == [[2, 1, 0], [1, 0, 0]]
    assert own.amount.flatten().tolist() == [5, 7, 8]
