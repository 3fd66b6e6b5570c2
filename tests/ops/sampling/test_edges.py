"""What is known of edges: their types, and those into the largest columns."""

import random
from importlib import import_module
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.devices import Device, Put, results
from tests.ops.graphs import ID_DTYPES

DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]


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


@given(typed_picks(), st.sampled_from(ID_DTYPES), st.sampled_from(DTYPES))
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


MODULE = import_module("graphfeed.ops.sampling.high_degree_index")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 4))
def test_entries_are_the_edges_into_the_largest_columns(dtype: torch.dtype, seed: int, least: int, part: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, 30, (2, 300), generator=generator)
    indptr, indices, _ = ops.coo_to_csc(ends[0], ends[1] ** 2 // 30, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "MIN_DEGREE", least)
        patch.setattr(MODULE, "MAX_SHARE", part)
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
