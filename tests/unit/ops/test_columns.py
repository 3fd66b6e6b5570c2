"""Columns that are counted, joined, merged, shifted and induced, held to lists."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.graphs import ID_DTYPES, Graph, graphs
from tests.stand_ins.devices import Device, results


@given(st.integers(1, 9), st.data(), st.sampled_from([torch.int32, torch.int64]))
def test_parts_give_the_order_of_the_whole(num_nodes: int, data: st.DataObject, dtype: torch.dtype) -> None:
    ends = data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=40))
    cut = data.draw(st.integers(0, len(ends)))
    parts = [torch.tensor(part, dtype=dtype) for part in (ends[:cut], ends[cut:])]
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    for part in parts:
        ops.count_edges(part, indptr[1:])
    indptr = indptr.cumsum(0)
    starts = indptr[:-1].clone()
    places = torch.cat([ops.assign_slots(part, starts) for part in parts])
    order = torch.empty_like(places)
    order[places] = torch.arange(len(ends))
    expected_indptr, _, expected_order = reference.coo_to_csc(ends, ends, num_nodes)
    assert indptr.tolist() == expected_indptr
    assert order.tolist() == expected_order
    assert starts.tolist() == expected_indptr[1:]


NODES = 5


EDGES = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=12)


DTYPES = st.sampled_from([torch.int32, torch.int64])


@given(lists=st.lists(EDGES, max_size=4), dtype=DTYPES)
def test_edges_come_column_by_column_one_list_behind_the_other(
    lists: list[list[tuple[int, int]]], dtype: torch.dtype
) -> None:
    parts, expected = [], []
    for number, edges in enumerate(lists):
        sources, destinations = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
        columns = ops.coo_to_csc(sources, destinations, NODES)
        parts.append([part.to(dtype) for part in (columns.indptr, columns.indices, columns.order + 100 * number)])
        numbered = [(end, place, source) for place, (source, end) in enumerate(edges)]
        expected += [[source, end, place + 100 * number] for end, place, source in sorted(numbered)]
    found = ops.join_columns(*([own[place] for own in parts] for place in range(3)))
    assert found.dtype == torch.int64
    assert found.T.tolist() == expected


@given(edges=EDGES)
def test_each_edge_has_its_reverse_and_the_id_of_the_first_that_joins_its_ends(edges: list[tuple[int, int]]) -> None:
    sources, destinations = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    both = [*edges, *((source, end) for end, source in edges)]
    # Of a pair that is there several times, the one that is entered last stays: the first one of the list.
    expected = {pair: place % len(edges) for place, pair in reversed(list(enumerate(both)))}
    pairs = sorted(expected, key=lambda pair: pair[::-1])
    found = ops.mirror_edges(sources, destinations, NODES, torch.arange(len(edges)) + 100)
    assert found.T.tolist() == [[*pair, expected[pair] + 100] for pair in pairs]


def csc_of(edges: list[tuple[int, int]], width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and ids of some edges, each of which is an id and a column."""
    ids, destinations = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    columns = ops.coo_to_csc(torch.zeros_like(ids), destinations, width)
    return columns.indptr.to(dtype), ids[columns.order].to(dtype)


@given(lists=st.lists(EDGES, max_size=4), many=st.booleans(), dtype=DTYPES)
def test_edges_that_no_list_before_has_are_marked_and_joined(
    device: Device, lists: list[list[tuple[int, int]]], many: bool, dtype: torch.dtype
) -> None:
    lists = [edges + [(edge, 0) for edge in range(5, 45)] * many for edges in lists]
    widths = [NODES + place for place in range(len(lists))]  # columns of a list begin with those of the one before
    parts = [csc_of(edges, width, dtype) for edges, width in zip(lists, widths, strict=True)]
    indptrs, ids = [indptr for indptr, _ in parts], [own for _, own in parts]
    (marks,) = results(device, lambda put: ops.mark_first(list(map(put, indptrs)), list(map(put, ids))))
    sizes = [0, *(sum(column < width for _, column in edges) for edges, width in zip(lists[1:], widths, strict=False))]
    assert [len(own) for own in marks] == sizes[: len(lists)]
    expected: list[tuple[int, int]] = []
    for edges in lists:
        known = set(expected)
        expected += [edge for edge in sorted(edges, key=lambda edge: edge[1]) if edge not in known]
    rows, columns, found = ops.join_columns(indptrs, ids, ids, marks)
    assert list(zip(found.tolist(), columns.tolist(), strict=True)) == expected
    assert rows.tolist() == found.tolist()


OWNED_COLUMNS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 200), max_size=5)), max_size=12)


WIDTHS = [
    (torch.int32, torch.int64),
    (torch.int64, torch.int64),
    (torch.int32, torch.int32),
    (torch.uint8, torch.uint8),
]


@given(columns=OWNED_COLUMNS, widths=st.sampled_from(WIDTHS))
def test_each_column_of_a_part_comes_to_its_place(
    columns: list[tuple[int, list[int]]], widths: tuple[torch.dtype, torch.dtype]
) -> None:
    sent, dtype = widths
    places, counts, values = [], [], []
    for part in range(3):
        own = [place for place, (owner, _) in enumerate(columns) if owner == part]
        edges = [edge for place in own for edge in columns[place][1]]
        places.append(torch.tensor(own, dtype=torch.int64))
        counts.append(torch.tensor([len(columns[place][1]) for place in own], dtype=torch.int32))
        values.append([torch.tensor(edges, dtype=sent), torch.tensor(edges, dtype=torch.int64) << 40])
    offsets, (small, large) = ops.merge_columns(places, counts, values, [dtype, torch.int64])
    edges = [edge for _, column in columns for edge in column]
    assert (small.tolist(), small.dtype) == (edges, dtype)
    assert large.tolist() == [edge << 40 for edge in edges]
    assert offsets.diff().tolist() == [len(column) for _, column in columns]
    assert int(offsets[0]) == 0


@given(columns=st.lists(st.tuples(st.integers(0, 1 << 40), st.lists(st.integers(0, 200), max_size=4)), max_size=9))
def test_picked_edges_are_read_with_the_ids_that_they_have_in_the_whole_graph(
    columns: list[tuple[int, list[int]]],
) -> None:
    # Every other edge of every column, the last column first; nodes of other parts have no columns here.
    counts = [len(own) for _, own in columns]
    starts, firsts = torch.tensor([0, *counts]).cumsum(0), torch.tensor([gap for gap, _ in columns] + [0]).cumsum(0)
    picked = [range(int(starts[node]), int(starts[node + 1]), 2) for node in reversed(range(len(columns)))]
    offsets = torch.tensor([0, *map(len, picked)]).cumsum(0)
    positions = torch.tensor([place for own in picked for place in own], dtype=torch.int64)
    indices = torch.tensor([source for _, own in columns for source in own], dtype=torch.int32)
    nodes = torch.arange(len(columns) - 1, -1, -1, dtype=torch.int32)
    found = ops.read_columns(starts, firsts, indices, nodes, offsets, positions)
    shifts = (firsts[:-1] - starts[:-1])[nodes.long()].repeat_interleave(offsets.diff())
    assert [own.tolist() for own in found] == [
        offsets.diff().tolist(), indices[positions].tolist(), (positions + shifts).tolist()
    ]  # fmt: skip
    assert [own.dtype for own in found] == [
        torch.int32, torch.int32, torch.int64 if int(firsts[-1]) > 1 << 31 else torch.int32
    ]  # fmt: skip


def induce_slowly(graph: Graph, trees: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return the edges inside of each tree, each with the places of its ends."""
    found, first = list[tuple[int, int, int]](), 0
    for tree in trees:
        for place, node in enumerate(tree):
            edges = range(graph.indptr[node], graph.indptr[node + 1])
            sources = [(edge, graph.indices[edge]) for edge in edges if graph.indices[edge] in tree]
            found += [(first + tree.index(source), first + place, edge) for edge, source in sources]
        first += len(tree)
    return found


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.sampled_from([0, 1 << 16]), graphs(), st.data())
def test_edges_inside_of_trees_are_found(dtype: torch.dtype, room: int, graph: Graph, data: st.DataObject) -> None:
    nodes = st.lists(st.integers(0, graph.num_nodes - 1), max_size=6) if graph.num_nodes else st.just([])
    trees = data.draw(st.lists(nodes, max_size=4))
    stacked = torch.tensor([node for tree in trees for node in tree], dtype=torch.int64)
    starts = torch.tensor([0, *map(len, trees)]).cumsum(0)
    arrays = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    with limits(first_edges=room):
        found = ops.induce_trees(*arrays, stacked, stacked, starts)
    assert torch.stack(found).T.tolist() == [list(edge) for edge in induce_slowly(graph, trees)]
