import sys

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.assignment.assign_metis import assign_by_metis, both_directions
from tests.distributed import graphs
from tests.storage.graph.assignment.test_assign_ldg import cut


def test_without_pymetis_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"the method 'metis' needs pymetis.*\.\[partition\]"):
        assign_by_metis(graphs.plain(), 2)


@pytest.mark.parametrize("recursive", [None, False, True])
def test_it_cuts_few_edges(recursive: bool | None) -> None:
    pytest.importorskip("pymetis")
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    parts = assign_by_metis(graph, 4, recursive=recursive)
    assert cut(graph, parts) < 0.12
    assert int(torch.bincount(parts).max()) <= 1040


def test_edges_count_in_both_directions_and_loops_not() -> None:
    graph = gf.from_coo(torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]]), 4)
    starts, neighbors, weights = both_directions(graph)
    assert starts.tolist() == [0, 2, 3, 4, 4]
    assert neighbors.tolist() == [1, 2, 0, 0]
    assert weights.tolist() == [3, 1, 3, 1]
