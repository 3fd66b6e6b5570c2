"""Graphs of NetworkX's and sparse matrices of SciPy's come in, and go back."""

from typing import Any

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import graphfeed as gf
from graphfeed.interop.networkx import from_networkx, to_networkx
from graphfeed.interop.scipy import from_scipy, to_scipy
from graphfeed.storage.graph.build import to_coo
from tests.refusals import Refusal, check_refused


def edges_of(graph: gf.FusedCSCSamplingGraph) -> list[tuple[int, int]]:
    edges = to_coo(graph)[None]
    return list(zip(edges.sources.tolist(), edges.destinations.tolist(), strict=True))


def test_directed_edges_keep_their_order_and_attributes() -> None:
    for kind in (networkx.DiGraph, networkx.MultiDiGraph):
        g = kind([("c", "a", {"time": 3}), ("a", "b", {"time": 1}), ("c", "c", {"time": 2})])
        graph = from_networkx(g, edge_attrs=["time"])
        names = list(g)
        expected = [(names.index(edge[0]), names.index(edge[1])) for edge in g.edges]
        assert edges_of(graph) == expected
        times = [data["time"] for *_, data in g.edges(data=True)]
        assert graph.edge_attributes["time"][to_coo(graph)[None].positions].tolist() == times


def test_undirected_edges_become_two_and_self_loops_stay_one() -> None:
    g = networkx.Graph([(0, 1, {"w": 0.5}), (2, 2, {"w": 1.5}), (1, 2, {"w": 2.5})])
    graph = from_networkx(g, edge_attrs=["w"])
    ends = [(int(first), int(second)) for first, second in g.edges]
    assert edges_of(graph) == ends + [(second, first) for first, second in ends if first != second]
    weights = [data["w"] for *_, data in g.edges(data=True)]
    reverses = [weight for (first, second), weight in zip(ends, weights, strict=True) if first != second]
    assert graph.edge_attributes["w"][to_coo(graph)[None].positions].tolist() == weights + reverses


def test_rows_of_nodes_are_kept() -> None:
    g = networkx.Graph()
    g.add_node("x", feat=[1.0, 2.0])
    g.add_node("y", feat=[3.0, 4.0])
    assert from_networkx(g, node_attrs=["feat"]).node_attributes["feat"].tolist() == [[1, 2], [3, 4]]


def test_an_empty_graph_has_no_nodes() -> None:
    assert from_networkx(networkx.DiGraph()).total_num_nodes == 0


def test_a_graph_goes_there_and_back() -> None:
    weights = torch.tensor([0.25, 0.5, 0.75])
    graph = gf.from_coo(
        ([2, 0, 2], [1, 0, 1]), 4, node_attributes={"x": torch.arange(4)}, edge_attributes={"w": weights}
    )
    g = to_networkx(graph)
    assert sorted(g.edges(data="w")) == [(0, 0, 0.5), (2, 1, 0.25), (2, 1, 0.75)]
    again = from_networkx(g, ["x"], ["w"])
    assert sorted(edges_of(again)) == sorted(edges_of(graph))
    assert again.node_attributes["x"].tolist() == [0, 1, 2, 3]


def test_types_are_told_by_names_of_nodes_and_data_of_edges() -> None:
    edges = {"user:likes:item": ([1, 1], [0, 0]), "item:rev_likes:user": ([0], [1])}
    g = to_networkx(gf.from_coo(edges, {"item": 1, "user": 2}))
    assert list(g) == [("item", 0), ("user", 0), ("user", 1)]
    found = sorted(g.edges(data="edge_type"))
    assert (
        found
        == [(("item", 0), ("user", 1), "item:rev_likes:user")] + [(("user", 1), ("item", 0), "user:likes:item")] * 2
    )


def test_attributes_may_have_the_names_of_networkx_s_own_arguments() -> None:
    names = {"key": torch.tensor([7, 7]), "u_for_edge": torch.tensor([1, 2])}
    g = to_networkx(gf.from_coo(([0, 0], [1, 1]), 2, edge_attributes=names))
    assert [data for *_, data in g.edges(data=True)] == [{"key": 7, "u_for_edge": 1}, {"key": 7, "u_for_edge": 2}]
    typed = gf.from_coo({"a:r:a": ([0], [0])}, {"a": 1}, edge_attributes={"edge_type": {"a:r:a": torch.ones(1)}})
    with pytest.raises(ValueError, match="'edge_type', which is to be the type"):
        to_networkx(typed)


def test_every_format_of_scipy_s_gives_the_same_edges() -> None:
    dense = np.array([[0, 2.5, 0], [1.5, 0, 0], [0, 4.5, 3.5]])
    for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        graph = from_scipy(sparse.coo_array(dense).asformat(kind), weight="w")
        assert graph.csc_indptr.tolist() == [0, 1, 3, 4], kind
        assert np.array_equal(to_scipy(graph, weight="w").toarray(), dense), kind


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_a_matrix_comes_back(pairs: list[tuple[int, int]]) -> None:
    rows, columns = (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))
    values = np.arange(len(pairs))
    found = to_scipy(from_scipy(sparse.coo_array((values, (rows, columns)), shape=(5, 5)), weight="w"), weight="w")
    assert found.shape == (5, 5)
    for given_, got in zip((rows, columns, values), (*found.coords, found.data), strict=True):
        assert np.array_equal(given_, got)


def test_matrices_by_type_give_types() -> None:
    edges: Any = {("user", "likes", "item"): sparse.csr_array(np.eye(2, 3)), "item:of:item": sparse.coo_array((3, 3))}
    graph = from_scipy(edges)
    assert graph.num_nodes == {"user": 2, "item": 3}
    assert graph.num_edges == {"user:likes:item": 2, "item:of:item": 0}
    back = to_scipy(graph)
    assert {kind: own.shape for kind, own in back.items()} == {"user:likes:item": (2, 3), "item:of:item": (3, 3)}
    assert np.array_equal(back["user:likes:item"].toarray(), np.eye(2, 3))


def test_what_does_not_fit_is_refused() -> None:
    g, many, ragged = networkx.path_graph(3), networkx.path_graph(3), networkx.path_graph(3)
    g.nodes[0]["name"] = "a"
    networkx.set_node_attributes(many, "a", "name")
    networkx.set_node_attributes(ragged, {0: [1], 1: [1, 2], 2: []}, "rows")
    wide = sparse.coo_array((2, 3))
    rows: list[Refusal] = [
        (lambda: from_networkx(g, node_attrs=["name"]), KeyError, "node 1 has no 'name'"),
        (lambda: from_networkx(many, node_attrs=["name"]), ValueError, "node attribute 'name' must be numbers, but ha"),
        (lambda: from_networkx(ragged, node_attrs=["rows"]), ValueError, "'rows' has values of different shapes"),
        (lambda: from_networkx([(0, 1)]), TypeError, "must be a graph of NetworkX's, but is a list"),
        (lambda: from_networkx(g, edge_attrs="weight"), TypeError, r"edge_attrs must be a list of names, .* \['weight"),
        (lambda: from_scipy(wide), ValueError, r"matrix has shape \(2, 3\), but it must be square"),
        (lambda: from_scipy(np.eye(2)), TypeError, "must be a sparse matrix of SciPy's with two dimensions, but is a"),
        (
            lambda: from_scipy({"a:r:b": wide, "b:r:a": sparse.coo_array((3, 4))}),
            ValueError,
            "'a' has 2 nodes elsewhere",
        ),
        (lambda: from_scipy({"a:b": wide}), ValueError, "an edge type is 'source:relation:destination'"),
        (lambda: to_scipy(gf.from_coo(([0], [0]), 1), weight="w"), KeyError, "w"),
    ]
    check_refused(rows)
