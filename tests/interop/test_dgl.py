"""DGL is not needed: a stand-in has the parts of its graphs that are read."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

from graphfeed.interop.dgl import from_dglgraph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from tests.digests import assert_same

ALL = torch.tensor([-1])
Kind = tuple[str, str, str]


class Data:
    """What `g.nodes["user"]` and `g.edges["user", "likes", "item"]` return."""

    def __init__(self, data: dict[str, torch.Tensor]) -> None:
        self.data = data


class Views(dict[Any, Data]):
    """By type the data; called, the ends of the edges, as DGL's view of edges."""

    ends: Callable[..., list[torch.Tensor]]

    def __call__(self, *, etype: Kind, order: Literal["eid"]) -> list[torch.Tensor]:
        return self.ends(etype)


class DGLGraph:
    """A graph as DGL's."""

    def __init__(self, edges: dict[Kind, tuple[list[int], list[int]]], num_nodes: dict[str, int]) -> None:
        self.ntypes = list(num_nodes)
        self.canonical_etypes = list(edges)
        self.counts = num_nodes
        self.nodes = Views({kind: Data({}) for kind in num_nodes})
        self.edges = Views({kind: Data({}) for kind in edges})
        self.idtype = torch.int64
        self.edges.ends = lambda kind: [torch.tensor(part, dtype=self.idtype) for part in edges[kind]]

    def num_nodes(self, kind: str) -> int:
        return self.counts[kind]


def plain() -> DGLGraph:
    """Return four edges of one type, whose weights tell which edge they belong to."""
    g = DGLGraph({("_N", "_E", "_N"): ([3, 2, 1, 0], [0, 0, 1, 2])}, {"_N": 4})
    g.edges["_N", "_E", "_N"].data["w"] = torch.tensor([30, 20, 11, 2])
    g.nodes["_N"].data["age"] = torch.arange(4)
    return g


def typed() -> DGLGraph:
    """Return users who follow users and like items."""
    edges = {("user", "follows", "user"): ([1, 0], [0, 1]), ("user", "likes", "item"): ([1, 0, 1], [2, 0, 0])}
    g = DGLGraph(edges, {"item": 3, "user": 2})
    g.edges["user", "follows", "user"].data.update(w=torch.tensor([0.1, 0.2]))
    g.edges["user", "likes", "item"].data.update(w=torch.tensor([1.0, 2.0, 3.0]), stars=torch.ones(3))
    g.nodes["item"].data.update(x=torch.ones(3, 2), price=torch.ones(3))
    g.nodes["user"].data.update(x=torch.ones(2, 5), price=torch.zeros(2))
    return g


def test_a_plain_graph_keeps_each_edges_data_beside_it() -> None:
    """GraphBolt leaves edge data in the order of the edge list, beside edges in another."""
    graph = from_dglgraph(plain(), is_homogeneous=True)
    assert graph.num_nodes == 4
    assert graph.node_type_to_id is None
    assert_same(graph.node_attribute("age"), torch.arange(4))
    hop = graph.sample_neighbors(torch.tensor([0, 1, 2]), ALL)
    assert_same(graph.indices, torch.tensor([3, 2, 1, 0]))
    assert_same(graph.edge_attribute("w"), torch.tensor([30, 20, 11, 2]))
    assert_same(hop.original_edge_ids, torch.arange(4))


def test_edges_in_another_order_take_their_data_with_them() -> None:
    g = DGLGraph({("_N", "_E", "_N"): ([0, 1, 2, 3], [2, 1, 0, 0])}, {"_N": 4})
    g.edges["_N", "_E", "_N"].data["w"] = torch.tensor([2, 11, 20, 30])
    graph = from_dglgraph(g, is_homogeneous=True, include_original_edge_id=True)
    assert_same(graph.indices, torch.tensor([2, 3, 1, 0]))
    assert_same(graph.edge_attribute("w"), torch.tensor([20, 30, 11, 2]))
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([2, 3, 1, 0]))


def test_one_type_is_a_type_unless_said_otherwise() -> None:
    graph = from_dglgraph(plain())
    assert graph.node_type_to_id == {"_N": 0}
    assert graph.edge_type_to_id == {"_N:_E:_N": 0}


def test_types_keep_their_numbers() -> None:
    graph = from_dglgraph(typed())
    assert graph.node_type_to_id == {"item": 0, "user": 1}
    assert graph.edge_type_to_id == {"user:follows:user": 0, "user:likes:item": 1}
    assert graph.num_edges == {"user:follows:user": 2, "user:likes:item": 3}


def test_what_all_types_have_alike_becomes_an_attribute() -> None:
    graph = from_dglgraph(typed())
    assert list(graph.node_attributes) == ["price"]
    assert list(graph.edge_attributes) == ["w"]
    assert_same(graph.node_attribute("price"), torch.tensor([1.0, 1, 1, 0, 0]))
    # By column: both edges of item 0 in their order, that of item 2, then those of the users.
    assert_same(graph.edge_attribute("w"), torch.tensor([2.0, 3.0, 1.0, 0.1, 0.2]))


def test_edge_ids_are_dgls_by_type() -> None:
    seeds = {"item": torch.tensor([0, 2]), "user": torch.tensor([1])}
    hop = from_dglgraph(typed(), include_original_edge_id=True).sample_neighbors(seeds, ALL)
    assert_same(
        hop.original_edge_ids, {"user:follows:user": torch.tensor([1]), "user:likes:item": torch.tensor([1, 2, 0])}
    )


def test_types_can_be_dropped() -> None:
    graph = from_dglgraph(typed(), is_homogeneous=True)
    assert graph.num_nodes == 5
    assert_same(graph.indices, torch.tensor([3, 4, 4, 4, 3]))
    assert_same(graph.edge_attribute("w"), torch.tensor([2.0, 3.0, 1.0, 0.1, 0.2]))


def test_ids_keep_their_dtype() -> None:
    g = typed()
    g.idtype = torch.int32
    assert from_dglgraph(g).indices.dtype == torch.int32


def test_what_is_no_graph_is_refused() -> None:
    edges: Any = ([1], [0])
    with pytest.raises(TypeError, match=r"g must be a dgl.DGLGraph, but is a tuple; from_coo takes edge lists"):
        from_dglgraph(edges)
