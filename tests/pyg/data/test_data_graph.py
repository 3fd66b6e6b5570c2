"""What loaders read of data: the graph, its times and weights, and the features."""

from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NeighborLoader
from graphfeed.pyg.data.data_features import read_features
from graphfeed.pyg.data.data_graph import read_graph
from graphfeed.pyg.data.tables import Tables, tables_of
from tests.pyg.neighborhood import KINDS, SIZES, heterogeneous, homogeneous


def test_an_edge_has_the_id_of_its_column() -> None:
    data = homogeneous()
    hop: Any = read_graph(data).graph.in_subgraph(torch.arange(60))
    csc = hop.sampled_csc
    ends = torch.repeat_interleave(torch.arange(60), csc.indptr.diff())
    assert torch.equal(torch.stack([csc.indices, ends]), data.edge_index[:, hop.original_edge_ids])


def test_times_are_those_of_nodes_or_of_edges() -> None:
    data = homogeneous()
    assert read_graph(data, "time")[1:3] == ("time", None)
    assert read_graph(data, "edge_time")[1:3] == (None, "edge_time")
    with pytest.raises(ValueError, match="time_attr is 'name', but neither"):
        read_graph(data, "name")
    typed = heterogeneous()
    typed["user", "likes", "item"].time = torch.arange(120)
    with pytest.raises(ValueError, match="there for nodes and for edges"):
        read_graph(typed, "time")


def test_types_without_a_time_are_always_there_and_those_without_weights_weigh_1() -> None:
    data = heterogeneous()
    del data["item"].time
    data["user", "knows", "user"].weight = torch.arange(90)
    found = read_graph(data, "time", "weight")
    times = found.graph.node_attribute("time")
    assert int(times.min()) == torch.iinfo(torch.int64).min
    weights = found.graph.edge_attribute("weight")
    assert weights.dtype == torch.float64
    assert sorted(weights.tolist()) == sorted([*range(90), *[1] * 240])


@pytest.mark.parametrize("edge_types", [(), (("user", "likes", "item"),)])
@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"time_attr": "time"}, {"subgraph_type": "induced"}])
def test_without_edges_mini_batches_are_the_seeds(edge_types: tuple[Any, ...], options: Any) -> None:
    data, typed = homogeneous(), heterogeneous()
    del data.edge_index
    for edge_type in typed.edge_types:
        del typed[edge_type]
    for edge_type in edge_types:
        typed[edge_type].label = torch.empty(0)
    for given, seeds in ((data, torch.tensor([7, 3])), (typed, ("user", torch.tensor([7, 3])))):
        batch = next(iter(NeighborLoader(given, [-1, 2], seeds, batch_size=2, **options)))
        own = batch if given is data else batch["user"]
        assert own.n_id.tolist() == [7, 3]
        assert torch.equal(own.x, (data if given is data else typed["user"]).x[[7, 3]])
        assert all(store.edge_index.shape == (2, 0) for store in batch.edge_stores)
        assert given is data or batch.edge_types == list(edge_types)


def test_links_may_be_given_where_there_are_no_edges() -> None:
    data = homogeneous()
    del data.edge_index
    links = torch.tensor([[7, 3], [3, 5]])
    batch = next(iter(LinkNeighborLoader(data, [2], edge_label_index=links, neg_sampling="binary", batch_size=2)))
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :2]], links)
    with pytest.raises(ValueError, match="edge_label_index is empty"):
        LinkNeighborLoader(data, [2])


def test_what_belongs_to_nodes_and_edges_is_fetched_and_the_rest_stays() -> None:
    data = homogeneous()
    found = read_features(data)
    assert found.node_names == {None: ["x", "y", "time", "train_mask"]}
    assert found.edge_names == {None: ["edge_attr", "weight", "edge_time"]}
    assert found.template.name == "random"
    assert set(found.template.keys()) == set(data.keys())
    assert all(found.template[name] == () for name in data.keys() if name != "name")  # noqa: SIM118
    assert data.x is not None


def test_memory_is_shared_with_the_data() -> None:
    data = homogeneous()
    rows = read_features(data).store["node", None, "x"].read()
    assert rows.data_ptr() == data.x.data_ptr()


def test_names_with_types() -> None:
    found = read_features(heterogeneous())
    assert found.node_names == {"user": ["x", "time", "y"], "item": ["x", "time"]}
    assert found.edge_names["user:likes:item"] == ["edge_attr"]


def test_values_may_be_arrays_or_have_nodes_in_another_dimension() -> None:
    data = homogeneous()
    data.array = np.arange(60)
    data.some_index = torch.arange(120).view(2, 60)
    found = read_features(data)
    assert found.store.read("node", None, "array", torch.tensor([7])).tolist() == [[7]]
    assert found.store.read("node", None, "some_index", torch.tensor([7])).tolist() == [[7, 67]]
    assert found.dims[None, "some_index"] == 1


def test_what_belongs_to_a_whole_graph_with_types_stays() -> None:
    data = heterogeneous()
    data.meta, data.scale = "hello", torch.tensor([3.0])
    assert read_features(data).template.meta == "hello"
    batch = next(iter(NeighborLoader(data, [2], "user", batch_size=4)))
    assert (batch.meta, batch.scale.item()) == ("hello", 3.0)
    assert torch.equal(batch["user"].x, data["user"].x[batch["user"].n_id])


LIKES, TO, RATES = ("user", "likes", "item"), ("user", "to", "item"), ("user", "rates", "item")


def test_tables_are_those_of_each_type_or_one_for_both() -> None:
    typed, plain = heterogeneous(), homogeneous()
    plain.node_types = 3  # any attribute may have any name
    found = tables_of(typed)
    assert found.typed
    assert [list(found.nodes), list(found.edges)] == [list(SIZES), list(KINDS)]
    assert found.nodes["user"]["y"] is typed["user"].y
    found = tables_of(plain)
    assert not found.typed
    assert found.nodes[None] is found.edges[None]
    assert found.nodes[None]["x"] is plain.x
    assert tables_of(found) is found


@pytest.mark.parametrize(
    ("known", "given", "found"),
    [
        ([LIKES], LIKES, LIKES),
        ([LIKES], ("user", "item"), LIKES),
        ([LIKES], ["likes"], LIKES),
        ([LIKES], ("item", "user"), None),
        ([LIKES, RATES], ("user", "item"), None),
        ([LIKES, RATES, TO], ("user", "item"), TO),
    ],
)
def test_an_edge_type_may_be_given_in_part(
    known: list[tuple[str, str, str]], given: tuple[str, ...], found: object
) -> None:
    assert Tables({}, dict.fromkeys(known)).edge_type(given) == found
