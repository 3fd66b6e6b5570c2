from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.digests import assert_same
from tests.ops.graphs import FANOUTS, KEYS, Graph, graphs_and_seeds


@given(
    graphs_and_seeds(),
    st.lists(FANOUTS, min_size=1, max_size=3),
    st.lists(KEYS, min_size=5, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_each_mini_batch_is_as_alone(
    given: tuple[Graph, list[int]], fanouts: list[int], numbers: list[int], weighted: bool, replace: bool
) -> None:
    arrays, own = given[0].arrays(weighted=weighted), torch.tensor(given[1], dtype=torch.int64)
    graph = ops.HopGraph(arrays.indptr, arrays.indices, cumulative=arrays.cumulative)
    seeds, drawing = [own, own[:1], own[1:]], ops.Drawing(replace=replace)
    keys = [numbers[batch : batch + len(fanouts)] for batch in range(3)]
    expected = [ops.sample_hops(graph, *each, drawing) for each in zip(seeds, [fanouts] * 3, keys, strict=True)]
    assert_same(ops.sample_hops_together(graph, seeds, fanouts, keys, drawing), expected)


def test_threads_may_share_the_work() -> None:
    indptr = torch.arange(0, 4001, 4)
    graph = ops.HopGraph(indptr, torch.randint(0, 1000, (4000,)))
    seeds, keys = [torch.arange(50), torch.arange(900, 1000)], [[1, 2], [3, 4]]
    with ThreadPoolExecutor(2) as threads:
        found = ops.sample_hops_together(graph, seeds, [2, 3], keys, each=threads.map)
    assert_same(found, ops.sample_hops_together(graph, seeds, [2, 3], keys))


@pytest.mark.parametrize("drawing", [ops.Drawing("labor"), ops.Drawing(only_new=True)], ids=["LABOR", "only_new"])
def test_other_drawings_are_refused(drawing: ops.Drawing) -> None:
    graph = ops.HopGraph(torch.tensor([0, 1]), torch.tensor([0]))
    with pytest.raises(ValueError, match="only without types, times, LABOR and only_new"):
        ops.sample_hops_together(graph, [torch.tensor([0])], [1], [[1]], drawing)


def test_what_leads_out_of_the_graph_is_refused() -> None:
    graph = ops.HopGraph(torch.tensor([0, 1]), torch.tensor([0]))
    with pytest.raises(ValueError, match="seeds"):
        ops.sample_hops_together(graph, [torch.tensor([0]), torch.tensor([1])], [1], [[1], [1]])
