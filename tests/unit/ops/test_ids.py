"""Ids are relabelled, made unique and looked up as the reference does it, on each device."""

import random
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops import Items, place_nodes
from graphfeed.ops.memory import buffers
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.graphs import ID_DTYPES
from tests.kinds.reference_placing import place_nodes as place_slowly
from tests.stand_ins.devices import Cpu, Device, Put, results

MODULE = import_module("graphfeed.ops.structure.compact")
"""By its name, for `ops.compact` is the function."""


NUM_NODES = 60


Typed = tuple[list[list[int]], list[list[int]], list[int]]


@st.composite
def typed_nodes(draw: st.DrawFn) -> Typed:
    """Make seeds by node type, neighbours by edge type, and the node type of each edge type's neighbours."""
    cuts = sorted(draw(st.lists(st.integers(0, NUM_NODES), min_size=0, max_size=2)))
    ranges = [range(low, high) for low, high in zip([0, *cuts], [*cuts, NUM_NODES], strict=True)]
    sources = draw(st.lists(st.sampled_from([kind for kind, ids in enumerate(ranges) if ids]), max_size=4))
    chance = random.Random(draw(st.integers(0, 2**32)))
    seeds = [chance.choices(ids, k=chance.randrange(8)) if ids else [] for ids in ranges]
    neighbors = [chance.choices(ranges[kind], k=chance.randrange(40)) for kind in sources]
    return seeds, neighbors, sources


def compact_typed(
    device: Device, given: Typed, dtype: torch.dtype, num_nodes: int | None
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield the rows by node type, and the neighbours as places in them by edge type."""
    seeds, neighbors, sources = given
    starts = reference.running_sum(map(len, neighbors))
    ids, ends = (torch.tensor(reference.join(part), dtype=dtype) for part in (seeds, neighbors))
    parts = {
        "seed_starts": torch.tensor(reference.running_sum(map(len, seeds))),
        "neighbor_starts": torch.tensor(starts),
        "sources": torch.tensor(sources, dtype=torch.int64),
    }
    for found in results(
        device,
        lambda put: ops.compact_parts(put(ids), put(ends), **parts, num_nodes=num_nodes),
        each_order=True,
    ):
        assert found.rows.dtype == found.local.dtype == dtype
        assert found.row_starts.dtype == torch.int64
        assert len(found.rows) == found.row_starts[-1]
        rows = [part.tolist() for part in found.rows.tensor_split(found.row_starts[1:-1])]
        yield rows, [part.tolist() for part in found.local.tensor_split(starts[1:])][: len(sources)]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(typed_nodes(), st.sampled_from([None, NUM_NODES]))
def test_equal_to_the_reference(device: Device, dtype: torch.dtype, given: Typed, num_nodes: int | None) -> None:
    for found in compact_typed(device, given, dtype, num_nodes):
        assert found == reference.compact(*given)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_equal_to_the_reference_beyond_the_limit_of_maps(dtype: torch.dtype) -> None:
    given: Typed = ([[3, 3, 1], [50]], [[9, 1, 3], [59, 58, 59], [0]], [0, 1, 0])
    with limits(node_map_bytes=4 * NUM_NODES - 1):
        assert list(compact_typed(Cpu(), given, dtype, NUM_NODES)) == [reference.compact(*given)]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 40), max_size=40), st.data())
def test_without_types_there_is_one_also_for_large_ids(
    device: Device, dtype: torch.dtype, seeds: list[int], neighbors: list[int], data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from([0, 2**31 - 50] if dtype == torch.int32 else [0, 2**31 - 10, 2**62 - 1]))
    repeats = data.draw(st.sampled_from([1, 128]))  # few ids are relabelled with a dict
    seeds, neighbors = [first + node for node in seeds], [first + node for node in neighbors] * repeats
    (rows,), (local,) = reference.compact([seeds], [neighbors], [0])
    given = [torch.tensor(part, dtype=dtype) for part in (seeds, neighbors)]
    num_nodes = None if first else data.draw(st.sampled_from([None, 41]))
    for found in results(device, lambda put: ops.compact(*map(put, given), num_nodes=num_nodes), each_order=True):
        assert found.rows.dtype == found.local.dtype == dtype
        assert (found.rows.tolist(), found.local.tolist()) == (rows, local)
        assert found.row_starts.tolist() == [0, len(rows)]


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12))
def test_marked_ids_are_compacted_alike(device: Device, given: list[tuple[int, bool]]) -> None:
    ids, marks = torch.tensor([own for own, _ in given], dtype=torch.int64), torch.tensor([own for _, own in given])
    marked = [place for place, (_, mark) in enumerate(given) if mark]
    (rows,), (local,) = reference.compact([[]], [[given[place][0] for place in marked]], [0])
    for found in results(device, lambda put: ops.compact_marked(put(ids), put(marks.bool())), each_order=True):
        assert [part.tolist() for part in found[:3]] == [marked, rows, local]
        assert found.least == min((own for own, _ in given), default=0)


@pytest.mark.parametrize("step", [1, 2**20, 2**31, 2**44, 2**52])
def test_hashed_ids_may_be_alike(step: int) -> None:
    ids = (torch.arange(4000) * step) % 2**62
    found = ops.compact(ids[:10], ids)
    assert found.rows.equal(ids[: len(set(ids.tolist()))])
    assert found.rows[found.local].equal(ids)


@pytest.mark.parametrize("num_nodes", [None, 2**20])
def test_large_batches(num_nodes: int | None) -> None:
    ids = torch.randint(0, 2**20, (200_000,))
    result = ops.compact(ids[:1000], ids[1000:], num_nodes=num_nodes)
    (rows,), (local,) = reference.compact([ids[:1000].tolist()], [ids[1000:].tolist()], [0])
    assert result.rows.tolist() == rows
    assert result.local.tolist() == local


@pytest.mark.parametrize("largest", [50_000, MODULE.SMALL_MAP - 1, MODULE.SMALL_MAP, 2**40])
def test_without_a_number_of_nodes_small_ids_need_no_hashing(largest: int) -> None:
    maps = buffers.NODE_MAPS.used_bytes, {size: len(own) for size, own in buffers.NODE_MAPS.idle.items()}
    seeds, neighbors = torch.randperm(40_000)[:500], torch.randint(0, 50_000, (MODULE.FEW,))
    neighbors[-1] = largest
    found = ops.compact(seeds, neighbors)
    (rows,), (local,) = reference.compact([seeds.tolist()], [neighbors.tolist()], [0])
    assert (found.rows.tolist(), found.local.tolist()) == (rows, local)
    size = 1 << (largest + 1).bit_length()
    if largest < MODULE.SMALL_MAP:
        assert (buffers.NODE_MAPS.idle[size][-1] == -1).all()
    else:
        assert maps == (buffers.NODE_MAPS.used_bytes, {size: len(own) for size, own in buffers.NODE_MAPS.idle.items()})


def test_maps_are_clean_afterwards() -> None:
    maps = buffers.NODE_MAPS
    for seeds, neighbors in (([1, 1], [2, 3]), ([], [4]), ([5], [])):
        ops.compact(torch.tensor(seeds, dtype=torch.int64), torch.tensor(neighbors, dtype=torch.int64), num_nodes=77)
        assert (maps.idle[77][-1] == -1).all()


def test_seeds_are_not_shared_with_the_rows() -> None:
    seeds = torch.tensor([1, 2])
    result = ops.compact(seeds, torch.tensor([2]))
    result.rows[:] = 9
    assert seeds.tolist() == [1, 2]


LISTS = st.lists(st.lists(st.integers(0, 12) | st.integers(0, 2**31 - 1), max_size=20), min_size=1, max_size=4)


def tensors(lists: list[list[int]], dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    return [torch.tensor(ids, dtype=dtype) for ids in lists]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(lists=LISTS)
def test_unique_and_compact_equals_the_reference(dtype: torch.dtype, lists: list[list[int]]) -> None:
    unique, local, offsets = ops.unique_and_compact(tensors(lists, dtype))
    assert unique.dtype == dtype
    assert {part.dtype for part in local} == {dtype}
    assert (unique.tolist(), [part.tolist() for part in local]) == reference.unique_and_compact(lists)
    assert offsets.tolist() == [0, len(unique)]


def test_unique_ids_by_type() -> None:
    nodes = {"a": tensors([[3, 1], [1, 2]]), "b": tensors([[7, 7]])}
    unique, local, offsets = ops.unique_and_compact(nodes)
    assert {kind: ids.tolist() for kind, ids in unique.items()} == {"a": [3, 1, 2], "b": [7]}
    assert {kind: [part.tolist() for part in parts] for kind, parts in local.items()} == {
        "a": [[0, 1], [1, 2]],
        "b": [[0, 0]],
    }
    assert {kind: part.tolist() for kind, part in offsets.items()} == {"a": [0, 3], "b": [0, 1]}


def test_no_type_and_no_ids_are_nothing() -> None:
    assert ops.unique_and_compact({}) == ({}, {}, {})
    unique, local, offsets = ops.unique_and_compact(tensors([[], []]))
    assert (unique.tolist(), [part.tolist() for part in local], offsets.tolist()) == ([], [[], []], [0, 0])


def test_unique_ids_can_be_waited_for() -> None:
    unique, (local,), _ = ops.unique_and_compact(tensors([[3, 3]]), async_op=True).wait()
    assert (unique.tolist(), local.tolist()) == ([3], [0, 0])


SMALL = st.integers(0, 4)


LARGE = st.sampled_from([0, 1, 1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1, (1 << 62) + 1, (1 << 63) - 1])


def match_slowly(
    indptr: list[int], sources: list[int], destinations: list[int], pairs: list[tuple[int, int]]
) -> list[int]:
    ends = [node for column, node in enumerate(destinations) for _ in range(indptr[column], indptr[column + 1])]
    return [place for place, edge in enumerate(zip(sources, ends, strict=True)) if edge in set(pairs)]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.data(), st.sampled_from(ID_DTYPES))
def test_matches_are_those_of_a_set_of_tuples(
    device: Device, dtype: torch.dtype, data: st.DataObject, starts: torch.dtype
) -> None:
    node = data.draw(st.sampled_from([SMALL] if dtype == torch.int32 else [SMALL, LARGE]))
    columns = data.draw(st.lists(st.tuples(node, st.lists(node, max_size=6)), max_size=6))
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=12))
    indptr = reference.running_sum(len(sources) for _, sources in columns)
    sources = reference.join(sources for _, sources in columns)
    ends = [end for end, _ in columns]
    expected = match_slowly(indptr, sources, ends, pairs)
    rows = list(dict.fromkeys(sources))
    local = [rows.index(source) for source in sources]
    given = [torch.tensor(indptr, dtype=starts)]
    given += [torch.tensor(part, dtype=dtype) for part in (sources, local, ends, pairs, rows)]

    def match(put: Put) -> list[torch.Tensor]:
        own, by_id, by_row, columns, wanted, names = map(put, given)
        wanted = wanted.reshape(-1, 2)
        return [ops.match_pairs(own, by_id, columns, wanted), ops.match_pairs(own, by_row, columns, wanted, names)]

    for found in results(device, match, each_order=True):
        assert {part.dtype for part in found} == {torch.int64}
        assert [part.tolist() for part in found] == [expected, expected]


def test_pairs_of_64_bits_are_told_apart(device: Device) -> None:
    sources, pairs = torch.tensor([5, 2**32 + 5, 2**62 + 5]), torch.tensor([[2**32 + 5, 2**40]])
    given = torch.tensor([0, 3]), sources, torch.tensor([2**40]), pairs
    for found in results(device, lambda put: ops.match_pairs(*[put(part) for part in given])):
        assert found.tolist() == [1]


def test_many_edges_and_pairs_are_matched() -> None:
    indptr, sources = torch.arange(0, 3001, 3), torch.randint(0, 50, (3000,))
    destinations, pairs = torch.randint(0, 50, (1000,)), torch.randint(0, 50, (400, 2))
    found = ops.match_pairs(indptr, sources, destinations, pairs)
    listed = [(source, destination) for source, destination in pairs.tolist()]
    assert found.tolist() == match_slowly(indptr.tolist(), sources.tolist(), destinations.tolist(), listed)
    assert 0 < len(found) < 3000


IDS = st.lists(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1), max_size=30)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.sampled_from(ID_DTYPES), IDS, IDS)
def test_isin_equals_the_look_up_in_a_list(
    device: Device, dtype: torch.dtype, test_dtype: torch.dtype, elements: list[int], others: list[int]
) -> None:
    given = torch.tensor(elements, dtype=dtype), torch.tensor(others, dtype=test_dtype)
    for found in results(device, lambda put: ops.isin(*map(put, given))):
        assert found.dtype == torch.bool
        assert found.tolist() == [element in others for element in elements]


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
    expected = place_slowly(sources, parts, loads, first, last, limit, items)
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
