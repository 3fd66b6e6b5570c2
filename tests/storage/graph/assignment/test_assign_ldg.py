import math
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.assignment import assign_ldg
from graphfeed.storage.graph.assignment.assign import assign_nodes
from graphfeed.storage.graph.assignment.assign_ldg import assign_by_ldg, ldg_memory
from tests.digests import assert_same
from tests.distributed import graphs
from tests.golden_pipelines import numbers
from tests.reference_placing import place_nodes


def cut(graph: gf.FusedCSCSamplingGraph, parts: torch.Tensor) -> float:
    """Return the share of edges between parts."""
    ends = gf.expand_indptr(graph.csc_indptr, torch.int64)
    return float((parts[graph.indices] != parts[ends]).float().mean())


def test_neighbours_come_together() -> None:
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    hashed = assign_nodes(graph, 4, "hash")
    assert isinstance(hashed, torch.Tensor)
    assert cut(graph, hashed) > 0.7
    assert cut(graph, assign_by_ldg(graph, 4)) < 0.25


def test_it_takes_no_more_memory_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign_ldg, "RANGE_NODES", 1 << 12)
    graph = graphs.plain(20_000, 400_000)
    said = ldg_memory(20_000, 8)
    assert said < graph.indices.nbytes
    tracemalloc.start()
    try:
        assign_by_ldg(graph, 8)
        assert tracemalloc.get_traced_memory()[1] < said
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "num_parts", "most_items"),
    [(graphs.plain, 1, 3), (graphs.plain, 7, 0), (graphs.typed, 7, 3), (graphs.typed, 60, 0)],
)
def test_nodes_are_placed_range_by_range_until_few_move(
    make: Callable[[], gf.FusedCSCSamplingGraph], num_parts: int, most_items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assign_ldg, "RANGE_NODES", 7)
    graph = make()
    items = numbers(graph.total_num_nodes, most_items, 4).int() if most_items else None
    indptr, total = graph.csc_indptr.tolist(), graph.total_num_nodes
    sources = [graph.indices[low:high].tolist() for low, high in pairwise(indptr)]
    offsets = graph.first_ids() if graph.node_type_to_id else [0, total]
    parts, moved = [-1] * total, total
    for _ in range(assign_ldg.PASSES):
        before = list(parts)
        for first, last in pairwise(offsets):
            loads = [parts[first:last].count(part) for part in range(num_parts)]
            limit = math.ceil((last - first) / num_parts * (1 + assign_ldg.SLACK))
            balanced = None
            if items is not None:
                own = items[first:last].tolist()
                held = [sum(own[node] for node in range(last - first) if parts[first + node] == part)
                        for part in range(num_parts)]  # fmt: skip
                balanced = own, held, math.ceil(sum(own) / num_parts * (1 + assign_ldg.SLACK))
            parts = place_nodes(sources, parts, loads, first, last, limit, balanced)
        moved = sum(one != other for one, other in zip(before, parts, strict=True))
        if moved <= assign_ldg.SETTLED * total:
            break
    assert assign_by_ldg(graph, num_parts, items).tolist() == parts


def test_items_are_balanced_beside_nodes() -> None:
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    # Without the items in mind, most of them would be in the part of the first nodes' communities.
    by_part = assign_by_ldg(graph, 4)
    favoured = torch.nonzero(by_part == 0).flatten()[:600]
    items = torch.zeros(4000, dtype=torch.int32)
    items[favoured] = 1
    parts = assign_by_ldg(graph, 4, items)
    assert torch.bincount(parts).max() <= math.ceil(1000 * (1 + assign_ldg.SLACK))
    assert torch.bincount(parts[favoured]).max() <= math.ceil(150 * (1 + assign_ldg.SLACK))
    assert cut(graph, parts) < 0.4


def test_parts_that_stay_empty_take_neither_memory_nor_nodes() -> None:
    for graph in (graphs.plain(), graphs.typed()):
        few = assign_by_ldg(graph, 2 * graph.total_num_nodes)
        tracemalloc.start()
        try:
            assert_same(assign_by_ldg(graph, 1 << 21), few)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
        assert_same(assign_by_ldg(graph, 1 << 31), few)
        assert int(few.max()) < graph.total_num_nodes
