"""All hops of a mini-batch are those of the slow reference: in any way of sampling, of any graph."""

import random
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.testing import limits
from tests.kinds.graph_kinds import KINDS
from tests.kinds.problems import Options, answers_of, are_valid, choices, covering, expected_answers, make_problem

LEAST: dict[str, Any] = {
    "first_edges": 1, "first_table": 1, "bounded_edges": 9, "node_map_bytes": 0, "index_degree": 8, "index_share": 1,
}  # fmt: skip
"""Sizes with which arrays and hash tables grow, and LABOR uses the index of large columns."""
WAYS = ["hop by hop", "by its own pick", "in a file, by page", "in one part", "in parts"]
"""The kinds of graphs that sample in another way than that in memory."""
COMBINATIONS = 40
"""They have each two values of all options that go together."""
OF_ROWS: Options = {"window": ["seeds"], "degrees": ["some", "many"], "seeds": ["different", "equal"]}
"""Options with which rows have windows of their own, which few other combinations tell apart."""


def check(options: Options, number: int, ids: torch.dtype) -> None:
    """Compare the answers of a graph in memory, and of one in another way, with those of the reference."""
    problem = make_problem(options, random.Random(number))
    wanted = expected_answers(problem, options["starts"], ids)
    graph = problem.graph.make(ids, options["starts"])
    with limits(**LEAST) if options["least"] else nullcontext():
        assert answers_of(graph, problem, wanted) == wanted
        for found in KINDS[options["way"]](graph, lambda own: answers_of(own, problem, wanted)):
            assert found == wanted


each_method = pytest.mark.parametrize(
    ("strategy", "in_time"),
    [("uniform", False), ("labor", False), ("uniform", True), ("labor", True), ("latest", True)],
)
each_dtype = pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)


@each_dtype
@each_method
def test_all_hops_are_those_of_the_reference(dtype: torch.dtype, strategy: str, in_time: bool) -> None:
    values = {"way": WAYS, **choices(strategy, in_time)}
    found = [*covering(values, COMBINATIONS), *(covering(values | OF_ROWS, COMBINATIONS // 2) if in_time else ())]
    for number, options in enumerate(found):
        check(options, number, dtype)


@pytest.mark.thorough
@each_dtype
@each_method
@given(st.data())
def test_with_any_options_all_hops_are_those_of_the_reference(
    dtype: torch.dtype, strategy: str, in_time: bool, data: st.DataObject
) -> None:
    values = {name: st.sampled_from(own) for name, own in {"way": WAYS, **choices(strategy, in_time)}.items()}
    check(data.draw(st.fixed_dictionaries(values).filter(are_valid)), data.draw(st.integers(0, 2**32)), dtype)


@pytest.mark.parametrize("power", [0.2, 1, 5])
def test_long_columns_are_searched_right_however_their_times_are_spread(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    size, columns = 5000, 20
    moments = (torch.rand(columns * size, generator=generator).double() ** power * 1e6).long()
    ends = moments % columns, torch.arange(columns).repeat_interleave(size)
    graph = gf.from_coo(ends, columns, edge_attributes={"time": moments})
    seeds, times = torch.arange(columns).repeat(20), torch.randint(-10, 1_000_010, (20 * columns,), generator=generator)
    hop = graph.temporal_sample_neighbors(
        seeds, times, torch.tensor([-1]), False, torch.full_like(times, 200_000), edge_timestamp_attr_name="time"
    )
    own = moments.reshape(columns, size)[seeds]
    inside = (own < times[:, None]) & (own > times[:, None] - 200_000)
    assert hop.sampled_csc.indptr.diff().tolist() == inside.sum(1).tolist()
