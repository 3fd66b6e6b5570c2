from typing import Any

import pytest
import torch

from graphfeed.storage import fused_csc_sampling_graph
from tests.digests import assert_same
from tests.storage.graph.test_fused_csc_sampling_graph import INDICES, INDPTR, make_graph


def test_attributes_are_found_by_name() -> None:
    weights, ages = torch.ones(9), torch.ones(5, 2)
    graph = fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"age": ages}, edge_attributes={"w": weights})
    assert graph.edge_attribute("w") is weights
    assert graph.node_attribute("age") is ages
    with pytest.raises(KeyError, match=r"Edge attribute age does not exist; the graph has \['w'\]"):
        graph.edge_attribute("age")
    with pytest.raises(KeyError, match=r"Node attribute w does not exist; the graph has \['age'\]"):
        graph.node_attribute("w")


def test_attributes_are_added_one_by_one_or_set_all() -> None:
    graph, ages, weights = make_graph(), torch.ones(5), torch.ones(9)
    graph.add_node_attribute("age", ages)
    graph.add_edge_attribute("w", weights)
    graph.add_edge_attribute("w", weights * 2)
    assert list(graph.node_attributes) == ["age"]
    assert graph.node_attributes["age"] is graph.node_attribute("age") is ages
    assert_same(graph.edge_attribute("w"), weights * 2)
    graph.edge_attributes = {"v": weights}
    assert list(graph.edge_attributes) == ["v"]
    graph.edge_attributes = None  # type: ignore[assignment]  # as GraphBolt takes it
    assert dict(graph.edge_attributes) == {}
    with pytest.raises(ValueError, match=r"edge_attributes\['w'\] must have 9 rows, one for each edge, but has 5"):
        graph.add_edge_attribute("w", ages)
    with pytest.raises(TypeError, match="does not support item assignment"):
        graph.node_attributes["age"] = torch.ones(3)  # type: ignore[index]


def test_attributes_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"edge_attributes\['w'\] must have 9 rows, one for each edge, but has 5"):
        fused_csc_sampling_graph(INDPTR, INDICES, edge_attributes={"w": torch.ones(5)})
    with pytest.raises(ValueError, match=r"node_attributes\['w'\] must have 5 rows, one for each node, but has 9"):
        fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"w": torch.ones(9)})
    with pytest.raises(ValueError, match=r"node_attributes\['w'\] must have 5 rows, .*, but has no dimension"):
        fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"w": torch.tensor(5)})
    values: Any = ["a"] * 5
    with pytest.raises(
        TypeError, match=r"node_attributes\['w'\] must be a torch.Tensor, .* but is \['a', 'a', .* 5 in"
    ):
        fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"w": values})
