import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.storage.graph import assign_ldg
from graphfeed.storage.graph.assign import assign_nodes
from graphfeed.storage.graph.assign_ldg import assign_by_ldg, fill, ldg_memory, place
from tests.digests import assert_same
from tests.distributed import graphs


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


def test_a_hub_that_is_read_piece_by_piece_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.from_coo((torch.arange(3000) % 300, torch.arange(3000) // 2000), 300)
    whole = assign_by_ldg(graph, 3)
    monkeypatch.setattr(assign_ldg, "BLOCK_EDGES", 64)
    assert_same(assign_by_ldg(graph, 3), whole)


def test_it_takes_no_more_memory_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign_ldg, "BLOCK_EDGES", 1 << 12)
    monkeypatch.setattr(assign_ldg, "BLOCK_SCORES", 1 << 12)
    graph = graphs.plain(20_000, 400_000)
    said = ldg_memory(20_000, 8)
    assert said < graph.indices.nbytes
    tracemalloc.start()
    try:
        assign_by_ldg(graph, 8)
        assert tracemalloc.get_traced_memory()[1] < said
    finally:
        tracemalloc.stop()


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 99))
def test_a_block_keeps_the_limit_and_the_keenest_are_first(num_parts: int, size: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    neighbors = chance.integers(0, 4, (size, num_parts))
    loads = chance.integers(0, 5, num_parts)
    limit = int(-(-(size + loads.sum()) // num_parts)) + 1
    loads = np.minimum(loads, limit)
    found = place(neighbors, loads.copy(), limit)
    after = loads + np.bincount(found, minlength=num_parts)
    assert after.max() <= max(limit, loads.max())
    scores = neighbors * (limit - loads)
    for node in np.flatnonzero(scores.max(axis=1, initial=0) > scores[np.arange(size), found]):
        # A node that is not where it wanted to be found that part full.
        assert after[scores[node].argmax()] == limit


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 30))
def test_the_emptiest_parts_are_filled_to_one_level(loads: list[int], count: int) -> None:
    expected = list(loads)
    for _ in range(count):
        expected[expected.index(min(expected))] += 1
    found = np.array(loads) + fill(np.array(loads), count)
    assert sorted(found.tolist()) == sorted(expected)


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
