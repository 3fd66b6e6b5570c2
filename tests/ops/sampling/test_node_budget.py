from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import NodeBudget
from graphfeed.ops.random import bounded, draw
from tests import reference
from tests.ops.calls import draw_from_budget
from tests.ops.chance import check_counts
from tests.ops.graphs import KEYS

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
def test_equal_to_the_reference(data: st.DataObject) -> None:
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


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"first_ids": torch.tensor([0, 3, 2])}, ValueError, "first_ids must not fall"),
        ({"sampled": torch.tensor([9])}, ValueError, r"sampled must lie in 0 \.\. 4, but holds 9"),
        ({"neighbors": torch.tensor([3, -1])}, ValueError, r"neighbors must lie in 0 \.\. 4, but holds -1"),
        ({"neighbors": torch.tensor([3.0, 4.0])}, TypeError, r"neighbors must be torch\.int64, but is torch\.float32"),
        ({"offsets": torch.tensor([0, 1])}, ValueError, "offsets must end with .* 2"),
        ({"wanted": [1]}, ValueError, r"wanted must hold 2 numbers of 0 or more, but is \[1\]"),
        ({"wanted": [1, -1]}, ValueError, "wanted must hold 2 numbers of 0 or more"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"first_ids": torch.tensor([0, 3, 5]), "sampled": torch.tensor([0]), "wanted": [1, 1]}
    given |= {"offsets": torch.tensor([0, 2]), "neighbors": torch.tensor([3, 4]), **changed}
    with pytest.raises(error, match=message):
        draw_from_budget(key=1, **given)
