from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, RandomNodeLoader
from graphfeed.pyg.data.data_graph import read_graph
from tests.pyg.neighborhood import heterogeneous, homogeneous


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


def test_other_data_are_refused() -> None:
    with pytest.raises(TypeError, match=r"data must be a Data or HeteroData of PyG, or a pair .*, but is a tuple"):
        NeighborLoader((1, 2), [1])
    with pytest.raises(TypeError, match="but is a ndarray"):
        NeighborLoader(np.ones(2), [1])


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


def test_what_is_missing_is_named() -> None:
    data = homogeneous()
    with pytest.raises(ValueError, match="data has no attribute 'w'; it has"):
        read_graph(data, weight_attr="w")
    with pytest.raises(ValueError, match="no type of data has the attribute 'w'"):
        read_graph(heterogeneous(), weight_attr="w")
    del data.edge_index
    data.adj_t = 0
    with pytest.raises(ValueError, match="data has 'adj_t', but edges are read from edge_index; leave out"):
        read_graph(data)


@pytest.mark.filterwarnings("ignore:Unable to accurately infer")  # PyG's own, before it gives None
def test_a_type_without_a_number_of_nodes_is_named() -> None:
    data = heterogeneous()
    del data["item"].x, data["item"].time
    text = r"node type 'item' has no num_nodes; set data\['item'\].num_nodes"
    with pytest.raises(ValueError, match=text):
        NeighborLoader(data, [1], "user")
    with pytest.raises(ValueError, match=text):
        RandomNodeLoader(data, 2)
    data["item"].num_nodes = 25
    assert read_graph(data).graph.num_nodes == {"user": 40, "item": 25}


def test_times_that_are_not_whole_are_named() -> None:
    data, typed = homogeneous(), heterogeneous()
    data.edge_time = data.edge_time.float()
    typed["user"].time = typed["user"].time.double()
    for given, name in ((data, "edge_time"), (typed, "time")):
        with pytest.raises(TypeError, match=f"time_attr '{name}' must be torch.int64, but is torch.float"):
            read_graph(given, name)
