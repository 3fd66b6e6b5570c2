"""Nodes are placed in parts as the reference does it."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops.structure.place_nodes import Items, place_nodes
from tests.reference_placing import place_nodes as reference


def item_loads(parts: list[int], counts: list[int], num_parts: int) -> list[int]:
    """Return how many items each part has."""
    return [sum(count for own, count in zip(parts, counts, strict=True) if own == part) for part in range(num_parts)]


@st.composite
def problems(draw: st.DrawFn) -> dict[str, object]:
    """Return a graph, parts that its nodes have before, and a range of them with other loads and a limit."""
    size, num_parts = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    nodes = st.integers(0, size - 1) | st.integers(0, min(2, size - 1))  # a few are hubs
    edges = draw(st.lists(st.tuples(nodes, nodes), max_size=120))
    first = draw(st.integers(0, size - 1))
    last = draw(st.integers(first + 1, size))
    parts = draw(st.lists(st.integers(-1, num_parts - 1), min_size=size, max_size=size))
    loads = [sum(part == own for own in parts[first:last]) for part in range(num_parts)]
    limit = max(max(loads), -(-(last - first) // num_parts)) + draw(st.integers(0, 2))
    counts = draw(st.lists(st.integers(0, 3), min_size=last - first, max_size=last - first))
    items = counts, item_loads(parts[first:last], counts, num_parts), draw(st.integers(0, sum(counts) + 1))
    return {
        "sources": [[source for source, end in edges if end == node] for node in range(size)],
        "parts": parts, "loads": loads, "first": first, "last": last, "limit": limit,
        "items": draw(st.none() | st.just(items)),
    }  # fmt: skip


def check(dtype: torch.dtype, sources: list[list[int]], parts: list[int], loads: list[int], **place: Any) -> None:
    """Compare parts, loads and the number of nodes that moved with those of the reference."""
    first, last, limit, items = (place[name] for name in ("first", "last", "limit", "items"))
    indptr = torch.tensor([0, *map(len, sources)], dtype=dtype).cumsum(0).to(dtype)
    indices = torch.tensor([source for own in sources for source in own], dtype=dtype)
    found, found_loads = torch.tensor(parts, dtype=torch.int32), torch.tensor(loads)
    given = items and Items(torch.tensor(items[0]), torch.tensor(items[1]), items[2])
    moved = place_nodes(indptr[first : last + 1], indices, found, found_loads, first, limit, given)
    expected = reference(sources, parts, loads, first, last, limit, items)
    assert found.tolist() == expected
    assert moved == sum(one != other for one, other in zip(parts, expected, strict=True))
    assert found_loads.tolist() == [sum(part == own for own in expected[first:last]) for part in range(len(loads))]
    if given:
        assert given.loads.tolist() == item_loads(expected[first:last], items[0], len(loads))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(problem=problems())
def test_nodes_are_placed_as_by_the_reference(dtype: torch.dtype, problem: dict[str, object]) -> None:
    check(dtype, **problem)  # type: ignore[arg-type]


def test_a_range_without_nodes_stays_as_it_is() -> None:
    parts = torch.tensor([1, 0], dtype=torch.int32)
    assert place_nodes(torch.tensor([0]), torch.tensor([0]), parts, torch.tensor([0, 0]), 1, 5) == 0
    assert parts.tolist() == [1, 0]


def test_as_many_parts_as_nodes_take_time_by_the_edges() -> None:
    size = 50_000
    ring = gf.from_coo((torch.arange(size), (torch.arange(size) + 1) % size), size)
    parts, loads = torch.full((size,), -1, dtype=torch.int32), torch.zeros(size, dtype=torch.int64)
    for _ in range(2):  # what grew with nodes times parts would take hours
        place_nodes(ring.csc_indptr, ring.indices, parts, loads, 0, 1)
        assert parts.sort().values.tolist() == list(range(size))
