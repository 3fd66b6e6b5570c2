import math
import sys
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import (
    METHODS,
    assign,
    assign_by_ldg,
    assign_by_metis,
    assign_nodes,
    ldg_memory,
    stacked_assignment,
)
from graphfeed.testing import limits
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same, digest
from tests.kinds.reference_placing import place_nodes
from tests.kinds.refusals import Refusal, check_refused

Call = Callable[[], object]

METIS = pytest.param("metis", marks=pytest.mark.skipif(find_spec("pymetis") is None, reason="pymetis is not installed"))
each_method = pytest.mark.parametrize("method", [*(name for name in METHODS if name != "metis"), METIS])


@each_method
def test_each_node_has_one_of_the_parts_which_depend_on_the_arguments_alone(method: str) -> None:
    for num_parts in (1, 2, 3, 8, 250):
        parts: Any = assign_nodes(graphs.plain(), num_parts, method, seed=7)
        assert (parts.dtype, parts.shape) == (torch.int32, (100,))
        sizes = torch.bincount(parts, minlength=num_parts)
        assert len(sizes) == num_parts
        assert int(sizes.max()) <= max(-(-100 // num_parts) * 1.05, 1)
        assert_same(assign_nodes(graphs.plain(), num_parts, method, seed=7), parts)
    by_type: Any = assign_nodes(graphs.typed(), 3, method)
    assert {kind: len(own) for kind, own in by_type.items()} == graphs.COUNTS
    assert list(by_type) == list(graphs.COUNTS)
    if method != "metis":
        for kind, own in by_type.items():
            assert int(torch.bincount(own, minlength=3).max()) <= -(-graphs.COUNTS[kind] // 3) * 1.04
    for num_nodes in (0, 1, 2):
        tiny = gf.from_coo(torch.zeros(2, num_nodes, dtype=torch.int64), num_nodes)
        assert len(assign_nodes(tiny, 3, method)) == num_nodes
    if method in ("hash", "metis"):
        large = graphs.plain(2000, 20_000)
        first, second = (digest(assign_nodes(large, 4, method, seed)) for seed in (0, 1))
        assert first != second


def test_a_range_is_consecutive_in_each_type() -> None:
    parts = assign_nodes(graphs.typed(), 4, "range")
    assert isinstance(parts, dict)
    assert_same(parts["item"], torch.arange(4, dtype=torch.int32).repeat_interleave(10))
    assert parts["user"].tolist() == sorted(parts["user"].tolist())


def test_hashed_parts_are_near_no_others() -> None:
    parts = assign_nodes(graphs.plain(10_000, 0), 4, "hash")
    assert isinstance(parts, torch.Tensor)
    same_as_next = int((parts[1:] == parts[:-1]).sum())
    assert abs(same_as_next - 2500) < 200


def test_an_assignment_is_stacked_in_the_order_of_ids() -> None:
    graph = graphs.typed()
    parts: Any = assign_nodes(graph, 3, "hash")
    assert_same(stacked_assignment(graph, dict(reversed(parts.items())), 3), torch.cat([parts["user"], parts["item"]]))


ZEROS = torch.zeros(100, dtype=torch.int64)
BY_TYPE = {kind: torch.zeros(count, dtype=torch.int32) for kind, count in graphs.COUNTS.items()}


def assigned(num_parts: Any = 2, method: str = "ldg", graph: Any = graphs.plain, balance: Any = None) -> Call:
    return lambda: assign_nodes(graph(), num_parts, method, balance=balance)


def stacked(assignment: Any, graph: Any = graphs.plain) -> Call:
    return lambda: stacked_assignment(graph(), assignment, 2)


REFUSED: list[Refusal] = [
    (assigned(2, "metric"), ValueError, r"method must be one of \['hash', 'range', 'ldg', 'metis'\], but is 'metric'"),
    (assigned(0), ValueError, "num_parts must be 1 or more, but is 0"),
    (assigned(1 << 31, "hash"), ValueError, "num_parts must be at most 2147483647, as parts are int32, but is 2147483"),
    (assigned(2.0), TypeError, "num_parts"),
    (assigned(balance=torch.tensor([100])), ValueError, r"balance must be in 0 \.\. 99, but holds 100"),
    (assigned(2, "hash", balance=torch.tensor([1])), ValueError,
     "balance needs method 'ldg', but the method is 'hash'"),
    (assigned(graph=graphs.typed, balance=torch.tensor([1])), TypeError,
     "balance must be a dict by node type for this graph, but is a Tensor"),
    (assigned(graph=graphs.typed, balance={"car": torch.tensor([1])}), KeyError,
     r"balance has the node types \['car'\], but the graph has"),
    (stacked(BY_TYPE), TypeError, "assignment must be a tensor for this graph, but is a dict"),
    (stacked(ZEROS, graphs.typed), TypeError, "assignment must be a dict by node type for this graph, but is a Tensor"),
    (stacked({"user": ZEROS}, graphs.typed), KeyError, "assignment must have the node types"),
    (stacked(ZEROS[1:]), ValueError, "assignment must have 100 values, one for each node, but has 99"),
    (stacked(ZEROS.index_fill(0, torch.tensor([3]), -1)), ValueError,
     r"assignment must hold parts in 0 \.\. 1, but goes from -1 to 0"),
    (stacked(ZEROS.float()), TypeError, "assignment"),
]  # fmt: skip


def test_what_is_no_assignment() -> None:
    check_refused(REFUSED)


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


def test_nodes_are_assigned_one_by_one_pass_by_pass() -> None:
    graph = gf.from_coo(torch.randint(64, (2, 200), generator=torch.Generator().manual_seed(0)), 64)
    starts, sources = graph.csc_indptr.tolist(), graph.indices.tolist()
    columns = [sources[start:end] for start, end in pairwise(starts)]
    parts = [-1] * 64
    for _ in range(10):  # few passes change anything
        parts = place_nodes(columns, parts, [parts.count(part) for part in range(3)], 0, 64, math.ceil(64 / 3 * 1.03))
    for size in (5, 64):
        with limits(part_values=size):
            assert assign_by_ldg(graph, 3).tolist() == parts


@limits(part_values=1 << 12)
def test_it_takes_no_more_memory_than_was_said() -> None:
    graph = graphs.plain(20_000, 400_000)
    said = ldg_memory(20_000, 8)
    assert said < graph.indices.nbytes
    tracemalloc.start()
    try:
        assign_by_ldg(graph, 8)
        assert tracemalloc.get_traced_memory()[1] < said
    finally:
        tracemalloc.stop()


def test_items_are_balanced_beside_nodes() -> None:
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    # Without balancing, most items would be in the part of the first nodes' communities.
    by_part = assign_by_ldg(graph, 4)
    favoured = torch.nonzero(by_part == 0).flatten()[:600]
    items = torch.zeros(4000, dtype=torch.int32)
    items[favoured] = 1
    parts = assign_by_ldg(graph, 4, items)
    assert torch.bincount(parts).max() <= math.ceil(1000 * (1 + assign.SLACK))
    assert torch.bincount(parts[favoured]).max() <= math.ceil(150 * (1 + assign.SLACK))
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


def test_without_pymetis_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"the method 'metis' needs pymetis.*graphfeed\[partition\]"):
        assign_by_metis(graphs.plain(), 2)


def test_metis_cuts_few_edges() -> None:
    pytest.importorskip("pymetis")
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    for recursive in (None, False, True):
        parts = assign_by_metis(graph, 4, recursive=recursive)
        assert cut(graph, parts) < 0.12
        assert int(torch.bincount(parts).max()) <= 1040
