import re
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests.ops.graphs import ID_DTYPES
from tests.ops.hops import sample_typed_timed
from tests.ops.sampling.hops.test_sample_hops_typed import HOPS, SEEDS, SHARES, draws_of, random_graph, text
from tests.ops.typed_timed import TypedInTime, problems_in_time

FIRST_EDGES = import_module("graphfeed.ops.sampling.hops.sample_hops"), "FIRST_EDGES"
MOMENTS = 20_000 - torch.arange(sum(map(len, SEEDS)))


@pytest.mark.parametrize("method", ["uniform", "labor", "latest"])
@given(st.sampled_from(ID_DTYPES), problems_in_time(), SHARES)
def test_equal_to_the_reference(method: Method, dtype: torch.dtype, problem: TypedInTime, share: int) -> None:
    if method == "latest":
        problem = replace(problem, replace=False, weighted=False)
    keys, steps = draws_of(method, problem.hops, share)
    expected = problem.expected(steps, "replace" if problem.replace else "latest" if method == "latest" else "")
    arguments, drawing = problem.arguments(dtype, len(expected)), ops.Drawing(method, problem.replace, share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*FIRST_EDGES, problem.first_edges)
        found = sample_typed_timed(**arguments, keys=keys[: len(expected)], **drawing._asdict())
    problem.check(found, expected, dtype)


def in_time(graph: ops.HopGraph) -> ops.TemporalGraph:
    """Return the edges of a graph by their time, which is their position."""
    found = ops.order_by_time(graph.indptr, torch.arange(graph.indices.numel()))
    assert found.order is None
    return ops.TemporalGraph(graph.indptr, graph.indices, found.times)


def right() -> dict[str, Any]:
    graph = random_graph()
    columns = in_time(graph)
    return {
        "graph": graph, "timed": (columns, columns), "seeds": SEEDS, "times": MOMENTS, "fanouts": HOPS, "keys": [1, 2]
    }  # fmt: skip


def test_results_stay_as_they_are_while_others_are_made() -> None:
    hops = sample_typed_timed(**right())
    expected = text(hops)
    for key in range(5):
        sample_typed_timed(**{**right(), "keys": [key, key + 7]})
    assert text(hops) == expected
    assert text(sample_typed_timed(**{**right(), "keys": [1, 3]})) != expected


def test_picks_that_int32_cannot_count_are_refused_before_there_is_room_for_them() -> None:
    graph = random_graph()
    graph = graph._replace(indptr=graph.indptr.int(), indices=graph.indices.int())
    seeds = [torch.tensor(part, dtype=torch.int32) for part in ([0, 1], [], [])]
    given = {**right(), "graph": graph, "seeds": seeds, "times": torch.full((2,), 2**40), "keys": [1]}
    with pytest.raises(ValueError, match=r"hop 0 would have \d+ edges, too many for int32; take smaller fanouts"):
        sample_typed_timed(**{**given, "fanouts": [torch.tensor([2**31 - 1])]}, replace=True)


COLUMNS = in_time(random_graph())


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"seeds": SEEDS[:2]}, ValueError, "seeds must hold 3 tensors, one per node type, but holds 2"),
        ({"times": MOMENTS[1:]}, ValueError, "times must have 45 values, one per seed, but has 44"),
        ({"times": MOMENTS.int()}, TypeError, "times must be torch.int64"),
        ({"windows": MOMENTS[1:]}, ValueError, "windows must have 45 values, one per seed, but has 44"),
        ({"windows": torch.arange(45) - 1}, ValueError, "windows must be 0 or more, but one is -1"),
        ({"fanouts": [HOPS[0], HOPS[1][:2]]}, ValueError, "must hold 1 number, or 5 (one per edge type), but holds 2"),
        ({"keys": [1]}, ValueError, "keys must hold 2 numbers, one per hop, but holds 1"),
        ({"keys": [(1, 2)], "method": "labor"}, ValueError, "keys must hold 2 pairs, one per hop, but holds 1"),
        ({"keys": [(1, 2), (3,)], "method": "labor"}, ValueError, "each hop needs two keys"),
        ({"method": "latest", "replace": True}, ValueError, "the latest edges are taken once each"),
        ({"timed": (COLUMNS,)}, ValueError, "timed must hold 2 graphs, for one fan-out and for one per edge type"),
        (
            {"timed": (COLUMNS, COLUMNS._replace(edge_times=torch.arange(20_000)))},
            ValueError,
            "the graphs in timed must have the same edge_times",
        ),
        (
            {"timed": (COLUMNS, COLUMNS._replace(times=torch.arange(9)))},
            ValueError,
            "graph.times must have 20000 values, one per edge, but has 9",
        ),
        (
            {"timed": (COLUMNS, COLUMNS._replace(order=torch.full((20_000,), 9_000)))},
            ValueError,
            "order must hold the place of each edge in its column, but a column is shorter",
        ),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        sample_typed_timed(**{**right(), **changed})
