from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.partition.source import source_of
from tests.digests import assert_same
from tests.distributed import graphs
from tests.distributed.pyg_data import LIKES, hetero_data, plain_data


def test_a_graph_is_its_own_source() -> None:
    graph = graphs.typed()
    source = source_of(graph)
    assert list(source.nodes) == list(graphs.COUNTS)
    assert_same(source.nodes["item"]["time"](torch.tensor([3])), torch.tensor([30]))
    ids = graph.edge_attribute(gf.ORIGINAL_EDGE_ID)
    assert_same(source.read_edges(LIKES, torch.tensor([7]), ids[7:8], "weight"), {"weight": ids[7:8] / 2})


def test_the_time_of_edges_has_one_name() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    graph = gf.from_coo(edges, 2, edge_attributes={"time": torch.tensor([5, 6])})
    assert list(source_of(graph).edge_attributes) == ["edge_time"]


def test_a_data_set_has_features_too() -> None:
    graph = graphs.plain()
    store = gf.BasicFeatureStore(
        {
            ("node", None, "feat"): gf.TorchBasedFeature(torch.arange(100)[:, None]),
            ("edge", None, "row"): gf.TorchBasedFeature(torch.arange(700)[:, None]),
        }
    )
    source = source_of(SimpleNamespace(graph=graph, feature=store))
    assert_same(source.nodes[None]["feat"](torch.tensor([4])), torch.tensor([[4]]))
    assert_same(source.read_edges(None, torch.tensor([0]), torch.tensor([9]), "row"), {"row": torch.tensor([[9]])})


def test_all_rows_of_data_are_read_by_id() -> None:
    data = plain_data()
    source = source_of(data)
    assert set(source.nodes[None]) == {"x", "y", "train_mask", "time"}
    assert set(source.edges[None]) == {"edge_attr", "edge_weight"}
    ids = torch.tensor([7, 3])
    for name, read in source.nodes[None].items():
        assert_same(read(ids), data.to_dict()[name][ids])
    for name, read in source.edges[None].items():
        assert_same(read(ids), data.to_dict()[name][ids])


def test_all_rows_of_data_with_types_are_read_by_id() -> None:
    data = hetero_data()
    source = source_of(data)
    assert {kind: set(own) for kind, own in source.nodes.items()} == {"user": {"x", "y"}, "item": {"x"}}
    assert set(source.edges[LIKES]) == {"edge_attr", "edge_time"}
    assert_same(source.nodes["item"]["x"](torch.tensor([3])), data["item"].x[3:4])


def test_what_has_a_column_for_each_edge_is_left_out() -> None:
    plain, hetero = plain_data(), hetero_data()
    plain.edge_label_index = plain.edge_index.clone()
    likes = hetero["user", "likes", "item"]
    likes.edge_label_index = likes.edge_index.clone()
    assert set(source_of(plain).edges[None]) == {"edge_attr", "edge_weight"}
    assert set(source_of(hetero).edges[LIKES]) == {"edge_attr", "edge_time"}


def test_data_without_edges_are_refused() -> None:
    data = plain_data()
    data.edge_index = None
    with pytest.raises(TypeError, match="or PyG's Data or HeteroData with edge_index"):
        source_of(data)


@pytest.mark.parametrize("data", [None, 3, SimpleNamespace(edge_index=None, num_nodes=3), torch.zeros(2, 3)])
def test_other_data_is_refused(data: Any) -> None:
    with pytest.raises(TypeError, match="data must be a FusedCSCSamplingGraph, a data set with one, or PyG's"):
        source_of(data)
