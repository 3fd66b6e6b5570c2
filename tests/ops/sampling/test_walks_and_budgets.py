"""Random walks, and nodes drawn from a budget by how often they are neighbours."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops import NodeBudget
from graphfeed.ops.random import bounded, draw
from tests import reference
from tests.ops.chance import check_counts
from tests.ops.graphs import ID_DTYPES, KEYS, Graph, graphs_and_seeds


def walk(graph: Graph, start: int, number: int, steps: int, key: int) -> list[int]:
    """Return the nodes on one walk."""
    nodes = [start]
    for step in range(steps):
        edges: Sequence[int] = graph.indices[graph.indptr[nodes[-1]] : graph.indptr[nodes[-1] + 1]]
        nodes.append(edges[bounded(draw(key, number, step), len(edges))] if edges else nodes[-1])
    return nodes


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(graphs_and_seeds(), KEYS)
def test_walks_equal_the_reference(dtype: torch.dtype, problem: tuple[Graph, list[int]], key: int) -> None:
    graph, starts = problem
    arrays = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    found = ops.random_walks(*arrays, torch.tensor(starts, dtype=torch.int64), 4, key)
    assert found.tolist() == [walk(graph, start, number, 4, key) for number, start in enumerate(starts)]
    assert found.dtype == torch.int64
    ends = found[:, 2].contiguous()
    assert ops.random_walks(*arrays, ends, 2, key, first_step=2).tolist() == found[:, 2:].tolist()


Runs = Sequence[Sequence[int]]


def share(budget: NodeBudget, sampled: Sequence[int], runs: Runs) -> None:
    offsets = torch.tensor([0, *accumulate(map(len, runs))])
    neighbors = torch.tensor(reference.join(runs), dtype=torch.int64)
    budget.share(torch.tensor(sampled, dtype=torch.int64), offsets, neighbors)


def draw_by_square(group: Sequence[int], scores: dict[int, int], count: int, bits: reference.Bits) -> list[int]:
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


@given(st.data())
def test_budgets_equal_the_reference(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 5, 300]), min_size=1, max_size=4).filter(any))
    first_ids = list(accumulate(sizes, initial=0))
    node = st.integers(0, first_ids[-1] - 1)
    budget = NodeBudget(torch.tensor(first_ids))
    newest, sampled, scores = data.draw(st.lists(node, max_size=3)), set[int](), dict[int, int]()
    for _ in range(3):
        runs = data.draw(st.lists(st.lists(node, max_size=30), max_size=12))
        wanted, key = [data.draw(st.sampled_from([0, 1, 4, 10**12])) for _ in sizes], data.draw(KEYS)
        share(budget, newest, runs)
        sampled |= set(newest)
        for run in runs:
            for neighbor in run:
                scores[neighbor] = scores.get(neighbor, 0) + 2**32 // len(run)
        expected = []
        for kind, count in enumerate(wanted):
            group = [own for own in scores if own not in sampled and first_ids[kind] <= own < first_ids[kind + 1]]
            bits = partial(draw, key, kind)
            expected.append(group if count >= len(group) else draw_by_square(group, scores, count, bits))
        assert [own.tolist() for own in budget.draw(wanted, key)] == expected
        newest = reference.join(expected)


def test_nodes_are_drawn_in_proportion_to_the_squares_of_their_scores() -> None:
    # Node 3 has points of nodes with 1, 2 and 4 neighbours; node 4 of two of them, 5 and 6 of one.
    drawn: Counter[int] = Counter()
    for key in range(1200):
        budget = NodeBudget(torch.tensor([0, 3, 7]))
        share(budget, [0, 1, 2], [[3], [3, 4], [3, 4, 5, 6]])
        drawn[int(budget.draw([0, 1], key)[1])] += 1
    scores = [1.75, 0.75, 0.25, 0.25]
    check_counts(torch.tensor([drawn[node] for node in range(3, 7)]), torch.tensor([score**2 for score in scores]))
