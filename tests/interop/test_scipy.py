"""Sparse matrices of SciPy's come in with an edge for each element, and go back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import graphfeed as gf
from graphfeed.interop.scipy import from_scipy, to_scipy

FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_edges(kind: str) -> None:
    dense = np.array([[0, 2.5, 0], [1.5, 0, 0], [0, 4.5, 3.5]])
    graph = from_scipy(sparse.coo_array(dense).asformat(kind), weight="w")
    assert graph.csc_indptr.tolist() == [0, 1, 3, 4]
    assert np.array_equal(to_scipy(graph, weight="w").toarray(), dense)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_a_graph_goes_there_and_back(pairs: list[tuple[int, int]]) -> None:
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


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"matrix has shape \(2, 3\), but it must be square"):
        from_scipy(sparse.coo_array((2, 3)))
    with pytest.raises(TypeError, match="must be a sparse matrix of SciPy's with two dimensions, but is a ndarray"):
        from_scipy(np.eye(2))
    with pytest.raises(ValueError, match=r"'a' has 2 nodes elsewhere"):
        from_scipy({"a:r:b": sparse.coo_array((2, 3)), "b:r:a": sparse.coo_array((3, 4))})
    with pytest.raises(ValueError, match="an edge type is 'source:relation:destination'"):
        from_scipy({"a:b": sparse.coo_array((2, 3))})
    with pytest.raises(KeyError, match="w"):
        to_scipy(gf.from_coo(([0], [0]), 1), weight="w")
