"""What the in-memory graph holds; what it refuses is in test_graph_errors.py."""

import pytest
import torch

from graphfeed.storage import fused_csc_sampling_graph
from tests.digests import assert_same
from tests.storage.test_graph import INDICES, INDPTR, make_graph, make_typed_graph


def test_sizes() -> None:
    graph = make_graph()
    assert (graph.total_num_nodes, graph.num_nodes, graph.total_num_edges, graph.num_edges) == (5, 5, 9, 9)


def test_sizes_by_type_in_the_order_of_their_numbers() -> None:
    graph = make_typed_graph()
    assert (graph.total_num_nodes, graph.total_num_edges) == (5, 6)
    assert_same(graph.num_nodes, {"user": 2, "item": 3})
    assert_same(graph.num_edges, {"item:liked_by:user": 2, "user:knows:user": 2, "user:likes:item": 2})


def test_arrays_are_not_copied() -> None:
    graph = make_graph()
    assert graph.csc_indptr is INDPTR
    assert graph.indices is INDICES


def test_attributes_are_found_by_name() -> None:
    weights, ages = torch.ones(9), torch.ones(5, 2)
    graph = fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"age": ages}, edge_attributes={"w": weights})
    assert graph.edge_attribute("w") is weights
    assert graph.node_attribute("age") is ages
    with pytest.raises(KeyError, match=r"Edge attribute age does not exist; the graph has \['w'\]"):
        graph.edge_attribute("age")
    with pytest.raises(KeyError, match=r"Node attribute w does not exist; the graph has \['age'\]"):
        graph.node_attribute("w")


def test_it_prints_its_sizes_alone() -> None:
    assert repr(make_graph()) == "FusedCSCSamplingGraph(num_nodes=5, num_edges=9)"
    sizes = "num_nodes=5, num_edges=6, node_types=['item', 'user'], edge_types=3"
    assert repr(make_typed_graph()) == f"FusedCSCSamplingGraph({sizes})"
