from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.random import bounded, draw
from tests import reference
from tests.ops.chance import check_counts
from tests.ops.graphs import KEYS
from tests.ops.sampling.hops.test_sample_hops_typed import Typed, random_graph, typed_graphs

Ints = Sequence[int]


def count_edges(types: Ints, column: range, key: int, node: int) -> list[Ints]:
    """Return the edges of a column that count, type by type: of more than 50, so many that are picked."""
    segments = reference.cut_by_type(types, column).items()
    return [
        part
        if len(part) <= 50
        else reference.pick_uniform(part.start, part.stop, 50, partial(draw, key, node, edge_type=kind))
        for kind, part in segments
    ]


def draw_by_square(group: Ints, scores: dict[int, int], count: int, bits: reference.Bits) -> list[int]:
    """Draw distinct nodes one after the other, in proportion to the squares of their scores, which are cut to fit."""
    shift = 0
    while max(scores[node] for node in group) >> shift >= 2 ** ((62 - len(group).bit_length()) // 2):
        shift += 1
    units, rest, chosen = {node: max(scores[node] >> shift, 1) ** 2 for node in group}, list(group), []
    for number in range(count):
        target = bounded(bits(number), sum(units[node] for node in rest))
        ends = accumulate(units[node] for node in rest)
        chosen.append(next(node for node, end in zip(rest, ends, strict=True) if end > target))
        rest.remove(chosen[-1])
    return chosen


def slowly(
    graph: tuple[Ints, Ints, Ints], first_ids: Ints, seeds: Sequence[Ints], hops: Sequence[tuple[Ints, int]]
) -> list[list[int]]:
    """Sample so many nodes of each type in each hop."""
    indptr, indices, types = graph
    found = [[first_ids[kind] + node for node in own] for kind, own in enumerate(seeds)]
    newest, scores, sampled = reference.join(found), dict[int, int](), set[int]()
    for wanted, key in hops:
        sampled |= set(newest)
        for node in newest:
            for edges in count_edges(types, range(indptr[node], indptr[node + 1]), key, node):
                for edge in edges:
                    scores[indices[edge]] = scores.get(indices[edge], 0) + 2**32 // len(edges)
        newest = []
        for kind, count in enumerate(wanted):
            group = [node for node in scores if node not in sampled and first_ids[kind] <= node < first_ids[kind + 1]]
            bits = partial(draw, key, kind)
            chosen = group if count >= len(group) else draw_by_square(group, scores, count, bits)
            found[kind] += chosen
            newest += chosen
    return [[node - first_ids[kind] for node in own] for kind, own in enumerate(found)]


@given(typed_graphs(), st.data())
def test_equal_to_the_reference(typed: Typed, data: st.DataObject) -> None:
    sizes = [end - start for start, end in zip(typed.first_ids, typed.first_ids[1:], strict=False)]
    seeds = [data.draw(st.lists(st.integers(0, size - 1), max_size=3)) if size else [] for size in sizes]
    numbers = st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes))
    hops = data.draw(st.lists(st.tuples(numbers, KEYS), max_size=3))
    found = ops.sample_by_budget(
        typed.arrays(torch.int64), [torch.tensor(own, dtype=torch.int64) for own in seeds],
        [wanted for wanted, _ in hops], [key for _, key in hops],
    )  # fmt: skip
    assert [own.tolist() for own in found] == slowly(typed.graph, typed.first_ids, seeds, hops)


def test_equal_to_the_reference_where_nodes_are_many_and_columns_long() -> None:
    graph = random_graph()
    seeds = [torch.tensor([3, 9, 3]), torch.tensor([7]), torch.tensor([200])]
    hops = [([20, 3, 40], 5), ([60, 0, 90], 6), ([100, 50, 1000], 7)]
    found = ops.sample_by_budget(graph, seeds, [wanted for wanted, _ in hops], [key for _, key in hops])
    assert graph.types is not None
    assert graph.first_ids is not None
    arrays = graph.indptr.tolist(), graph.indices.tolist(), graph.types.tolist()
    assert int(graph.indptr.diff().max()) > 50
    expected = slowly(arrays, graph.first_ids.tolist(), [own.tolist() for own in seeds], hops)
    assert [own.tolist() for own in found] == expected


def star(degrees: list[int]) -> ops.HopGraph:
    """Return a graph of seeds 0, 1, ... and neighbours of another type; neighbour i has an edge to the seeds before i.

    Each seed has so many neighbours.
    """
    sources = [len(degrees) + node for degree in degrees for node in range(degree)]
    count = len(degrees) + max(degrees)
    indptr = [*accumulate(degrees, initial=0), *[sum(degrees)] * max(degrees)]
    return ops.HopGraph(
        torch.tensor(indptr), torch.tensor(sources), torch.zeros(len(sources), dtype=torch.uint8),
        torch.tensor([0, len(degrees), count]), torch.tensor([[1, 0]]), torch.tensor([0]),
    )  # fmt: skip


def test_nodes_are_drawn_in_proportion_to_the_squares_of_their_scores() -> None:
    # Neighbour 0 has points of seeds with 1, 2 and 4 neighbours; neighbour 1 of two of them, 2 and 3 of one.
    graph, seeds = star([1, 2, 4]), [torch.tensor([0, 1, 2]), torch.tensor([], dtype=torch.int64)]
    drawn = Counter(int(ops.sample_by_budget(graph, seeds, [[0, 1]], [key])[1][0]) for key in range(1200))
    scores = [1.75, 0.75, 0.25, 0.25]
    squares = [score**2 for score in scores]
    check_counts(torch.tensor([drawn[node] for node in range(4)]), torch.tensor(squares))


def test_all_are_taken_where_there_are_no_more() -> None:
    graph, seeds = star([1, 2, 4]), [torch.tensor([2]), torch.tensor([], dtype=torch.int64)]
    found = ops.sample_by_budget(graph, seeds, [[5, 10**12]], [1])
    assert [own.tolist() for own in found] == [[2], [0, 1, 2, 3]]


def test_of_many_neighbours_fifty_have_points() -> None:
    graph, seeds = star([500]), [torch.tensor([0]), torch.tensor([], dtype=torch.int64)]
    for key in range(5):
        assert len(set(ops.sample_by_budget(graph, seeds, [[0, 500]], [key])[1].tolist())) == 50


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_samples": [[1]]}, ValueError, r"num_samples\[0\] must hold 3 numbers, but holds 1"),
        ({"num_samples": [[1, -1, 2]]}, ValueError, r"num_samples\[0\] must be 0 or more, but is -1"),
        ({"num_samples": [[1, 1.5, 2]]}, TypeError, r"num_samples\[0\] must be a whole number"),
        ({"keys": [1, 2]}, ValueError, "keys must hold 1 numbers, one per hop, but holds 2"),
        ({"seeds": [torch.tensor([0])]}, ValueError, "seeds must hold 3 tensors"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    none = torch.tensor([], dtype=torch.int64)
    right: dict[str, Any] = {"graph": random_graph(), "seeds": [torch.tensor([1]), none, none]}
    right |= {"num_samples": [[1, 2, 3]], "keys": [1]}
    ops.sample_by_budget(**right)
    with pytest.raises(error, match=message):
        ops.sample_by_budget(**{**right, **changed})
