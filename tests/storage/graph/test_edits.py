import pytest

import graphfeed as gf
from tests.ops.test_verified import large_graph


def test_arrays_that_no_longer_are_a_graph_are_refused() -> None:
    graph = large_graph()
    pipe = gf.ItemSampler(gf.ItemSet(10, names="seeds"), batch_size=10).sample_neighbor(graph, [2])
    assert len(list(pipe)) == 1
    graph.csc_indptr[5] = 2**40
    with pytest.raises(ValueError, match="csc_indptr must not fall, but goes from 1099511627776 to 12 at node 5"):
        list(pipe)
    graph.csc_indptr[5] = 10
    assert len(list(pipe)) == 1
    graph.indices[7] = 3000
    with pytest.raises(ValueError, match=r"indices must lie in 0 \.\. 2999, but holds 3000"):
        list(pipe)


def test_types_that_no_longer_fit_are_refused() -> None:
    edges = {"a:to:b": ([0, 1], [0, 1]), "b:to:a": ([1], [0])}
    graph = gf.from_coo(edges, {"a": 2, "b": 2})
    items = gf.ItemSampler(gf.HeteroItemSet({"b": gf.ItemSet(2, names="seeds")}), batch_size=2)
    pipe = items.sample_neighbor(graph, [2, 2])
    assert len(list(pipe)) == 1
    assert graph.type_per_edge is not None
    graph.type_per_edge[-1] = 200
    with pytest.raises(ValueError, match="type_per_edge"):
        list(pipe)
