"""Properties of edges: types, the index of the largest columns, and weights."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.cpu.search import NEAR, near_end, run_end
from graphfeed.ops.random import bounded, draw
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.graphs import DEGREES, ID_DTYPES
from tests.kinds.hops import record, sample_all, sample_one
from tests.stand_ins.devices import Device, Put, results

TYPE_DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]


@st.composite
def typed_picks(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """Make picks, the graph's edge types, the node type of each column, and that which each edge type leads to."""
    destinations = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    column_types = sorted(draw(st.lists(st.integers(0, 2), max_size=10)))
    chance = random.Random(draw(st.integers(0, 2**32)))
    types: list[int] = []
    picked = []
    for kind in column_types:
        own = [edge_type for edge_type, end in enumerate(destinations) if end == kind]
        degree = chance.randrange(12) if own else 0
        segment = range(len(types), len(types) + degree)
        types += sorted(chance.choices(own, k=degree)) if own else []
        picked.append(chance.choices(segment, k=chance.randrange(15)) if degree else [])
    return picked, types, column_types, destinations


@given(typed_picks(), st.sampled_from(ID_DTYPES), st.sampled_from(TYPE_DTYPES))
def test_grouping_equals_the_reference(
    device: Device,
    given: tuple[list[list[int]], list[int], list[int], list[int]],
    dtype: torch.dtype,
    type_dtype: torch.dtype,
) -> None:
    picked, types, column_types, destinations = given
    indptrs, positions = reference.group_by_type(picked, types, column_types, destinations)
    offsets = torch.tensor(reference.running_sum(map(len, picked)))
    kinds, starts = torch.tensor(types, dtype=type_dtype), [column_types.count(kind) for kind in range(3)]
    columns, ends = torch.tensor(reference.running_sum(starts)), torch.tensor(destinations)

    def group(put: Put) -> ops.TypedPicks:
        picks = ops.Picks(put(offsets), put(torch.tensor(reference.join(picked), dtype=torch.int64)))
        return ops.group_by_type(picks, put(kinds), columns, ends, dtype)

    for typed in results(device, group):
        assert typed.indptr.dtype == dtype
        assert typed.bounds.tolist() == reference.running_sum(map(len, indptrs))
        assert typed.indptr.tolist() == reference.join(indptrs)
        assert typed.starts.tolist() == reference.running_sum(map(len, positions))
        assert typed.positions.tolist() == reference.join(positions)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 4))
def test_entries_are_the_edges_into_the_largest_columns(dtype: torch.dtype, seed: int, least: int, part: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, 30, (2, 300), generator=generator)
    indptr, indices, _ = ops.coo_to_csc(ends[0], ends[1] ** 2 // 30, 30)
    with limits(index_degree=least, index_share=part):
        columns, degrees, starts, entries = ops.build_high_degree_index(indptr.to(dtype), indices.to(dtype))
    sizes = indptr.diff()
    by_size = sorted((size, column) for column, size in enumerate(sizes.tolist()) if size >= least)
    while sum(size for size, _ in by_size) > 300 // part:
        by_size.pop(0)
    assert list(zip(degrees.tolist(), columns.tolist(), strict=True)) == by_size
    found = [(node, entry) for node, own in enumerate(pairwise(starts.tolist())) for entry in entries[slice(*own)]]
    edges = [
        (int(indices[indptr[column] + place]), (number << 32) + place)
        for number, (size, column) in enumerate(by_size)
        for place in range(size)
    ]
    assert [(node, int(entry)) for node, entry in found] == sorted(edges)


def test_a_graph_of_small_columns_has_no_index() -> None:
    index = ops.build_high_degree_index(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 1]))
    assert [len(part) for part in index] == [0, 0, 1, 0]


WEIGHT_DTYPES = [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64]
UNITS = 2**31


@given(st.sampled_from(WEIGHT_DTYPES), st.sampled_from(ID_DTYPES), st.lists(DEGREES, max_size=8), st.integers(0, 2**32))
def test_sums_equal_the_reference(
    device: Device, dtype: torch.dtype, indptr_dtype: torch.dtype, degrees: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    indptr = reference.running_sum(degrees)
    values = [chance.choice([0, 0, 1, 1e-5, 7, chance.random(), chance.expovariate(0.1)]) for _ in range(indptr[-1])]
    weights, starts = torch.tensor(values, dtype=dtype), torch.tensor(indptr, dtype=indptr_dtype)
    for found in results(device, lambda put: ops.cumulate_weights(put(starts), put(weights))):
        assert found.dtype == torch.int64
        assert found.tolist() == reference.cumulate_weights(indptr, [float(weight) for weight in weights.tolist()])


def test_sums_are_the_same_in_parts() -> None:
    indptr, weights = torch.tensor([0, 0, 4, 5, 5, 9, 9]), torch.tensor([1.0, 0, 3, 2, 5, 0, 0, 1, 4])
    for part in (1, 2, 100):
        with limits(checked_edges=part):
            found = ops.cumulate_weights(indptr, weights).tolist()
        assert found == reference.cumulate_weights(indptr.tolist(), weights.tolist())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_weight_however_small_counts(device: Device, dtype: torch.dtype) -> None:
    smallest, largest = torch.finfo(dtype).smallest_normal / 64, torch.finfo(dtype).max
    weights = torch.tensor([smallest, 0, largest, smallest, 2 * smallest], dtype=dtype)
    for found in results(device, lambda put: ops.cumulate_weights(put(torch.tensor([0, 3, 5])), put(weights))):
        assert found.tolist() == [1, 1, 1 + UNITS, UNITS // 2, UNITS // 2 + UNITS]


def test_sums_of_no_edges_and_of_long_columns_fit() -> None:
    count = 1 << 20
    assert int(ops.cumulate_weights(torch.tensor([0, count]), torch.ones(count))[-1]) == count * UNITS
    for indptr in ([0], [0, 0, 0]):
        assert ops.cumulate_weights(torch.tensor(indptr), torch.tensor([])).tolist() == []


SKEWED_DEGREES = st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 40, 700]), min_size=1, max_size=6)


def skewed(degrees: list[int], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and running sums of weights of which few are large and some are 0."""
    chance = random.Random(seed)
    indptr = reference.running_sum(degrees)
    weights = [chance.choice([0, 1, 1 / (chance.random() + 1e-6), 1e-12]) for _ in range(indptr[-1])]
    return torch.tensor(indptr), torch.tensor(reference.cumulate_weights(indptr, weights), dtype=torch.int64)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(SKEWED_DEGREES, st.integers(0, 2**32))
def test_a_guide_is_the_first_edge_that_its_share_may_choose(dtype: torch.dtype, degrees: list[int], seed: int) -> None:
    indptr, sums = skewed(degrees, seed)
    guides = ops.guide_sums(indptr.to(dtype), sums)
    for low, high in pairwise(indptr.tolist() if guides.numel() else []):
        own, total = sums[low:high].tolist(), int(sums[high - 1]) if high > low else 0
        for place, number in enumerate(guides[low:high].tolist() if total else []):
            # Draws are integers, and the share of a draw is computed in floating point.
            border, slack, edge = place * total / (high - low), 1 + total * 1e-9, place + number
            assert own[edge] >= border - slack
            assert edge == 0 or own[edge - 1] <= border + slack


@given(
    st.sampled_from(["made", "random", "none"]),
    SKEWED_DEGREES,
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from([1, 3, 20, 60]),
)
def test_draws_are_the_same_whatever_the_guides_say(
    what: str, degrees: list[int], seed: int, replace: bool, fanout: int
) -> None:
    indptr, sums = skewed(degrees, seed)
    torch.manual_seed(seed)
    found = {
        "made": ops.guide_sums(indptr, sums),
        "random": torch.randint(-(2**31), 2**31, sums.shape, dtype=torch.int32),
    }
    guided = ops.GuidedSums(sums, found[what]) if what in found else ops.GuidedSums(sums)
    indices, seeds = torch.randint(0, len(degrees), sums.shape), torch.arange(len(degrees))
    graph = indptr, indices, seeds, [fanout, 2], [seed, seed + 1]
    for only_new in (False, True):
        wanted, got = (
            sample_all(*graph, replace=replace, only_new=only_new, cumulative=weights) for weights in (sums, guided)
        )
        assert wanted is not None
        assert got is not None
        assert [[part.tolist() for part in hop] for hop in got] == [[part.tolist() for part in hop] for hop in wanted]


def test_guides_are_kept_where_few_edges_have_most_of_the_weight() -> None:
    indptr, even = torch.tensor([0, 0, 4000]), torch.rand(4000, generator=torch.manual_seed(0))
    assert ops.guide_sums(indptr, ops.cumulate_weights(indptr, even)).numel() == 0
    assert ops.guide_sums(indptr, ops.cumulate_weights(indptr, 1 / (even + 1e-6))).numel() == 4000
    for indptr in (torch.tensor([0]), torch.tensor([0, 0]), torch.tensor([0, 3])):
        assert ops.guide_sums(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64)).numel() == 0


HUB = 300_000


def draw_from_hub(weights: torch.Tensor, fanout: int, *, replace: bool) -> tuple[list[int], list[int]]:
    """Return the units of a column, and what is drawn from it."""
    indptr = torch.tensor([0, len(weights)])
    sums = ops.cumulate_weights(indptr, weights)
    columns = record(indptr, cumulative=sums)
    picks = sample_one(columns, torch.tensor([0]), torch.tensor([fanout]), 5, replace=replace)
    return sums.diff(prepend=torch.tensor([0])).tolist(), picks.positions.tolist()


def draw_one_by_one(units: list[int], count: int, key: int, *, replace: bool) -> list[int]:
    """Return what `reference.pick` gives for the column of node 0, by NumPy, as a list takes hours for a hub."""
    left, found = np.array(units), []
    for number in range(count):
        ends = left.cumsum()
        target = bounded(draw(key, 0, number, None), int(ends[-1]))
        found.append(int(np.searchsorted(ends, target, side="right")))
        if not replace:
            left[found[-1]] = 0
    return found if replace else sorted(found)


def test_a_hub_draws_by_the_same_law() -> None:
    values = torch.rand(HUB, generator=torch.manual_seed(0))
    # The guess by equal weights is far off for skewed ones.
    for weights in (torch.ones(HUB), 1 / (values + 1e-7), torch.arange(HUB, dtype=torch.float64) ** 8):
        for replace in (False, True):
            units, found = draw_from_hub(weights, 20, replace=replace)
            assert found == draw_one_by_one(units, 20, 5, replace=replace)


def test_weight_0_is_never_drawn_at_the_ends_of_a_column() -> None:
    weights = torch.zeros(HUB)
    weights[[0, 1, HUB // 2, HUB - 2]] = torch.tensor([1e-30, 1.0, 1e-30, 1.0])
    for replace, fanout in ((False, 3), (False, 4), (False, 9), (True, 50)):
        units, found = draw_from_hub(weights, fanout, replace=replace)
        assert len(found) == (fanout if replace else min(fanout, 4))
        assert all(units[edge] > 0 for edge in found)


@example([[NEAR - 1]])
@given(st.lists(st.lists(st.integers(0, 3 * NEAR), max_size=4), max_size=5))
def test_a_run_ends_at_the_next_type_or_with_its_column(columns: list[list[int]]) -> None:
    types = np.concatenate(
        [np.zeros(0, np.uint8), *(np.arange(len(sizes), dtype=np.uint8).repeat(sizes) for sizes in columns)]
    )
    low, finders = 0, list[Any]([near_end, run_end])
    for sizes in columns:
        end = low + sum(sizes)
        for size in filter(None, sizes):
            assert {find(types, low, end) for find in finders} == {low + size}
            low += size
