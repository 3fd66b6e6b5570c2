"""Nodes that are drawn: negatives and places by a key, and nodes from a budget."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops import EdgeSet, NodeBudget, Population
from graphfeed.ops.random import bounded, draw
from tests.kinds import reference
from tests.kinds.chance import check_counts, check_unrelated
from tests.kinds.graphs import ID_DTYPES, KEYS
from tests.stand_ins.devices import Device, results

KEY = 12345
"""A key of draws."""


def columns(pairs: list[tuple[int, int]], num_nodes: int, dtype: torch.dtype = torch.int64) -> EdgeSet:
    sources, ends = torch.tensor(pairs, dtype=dtype).reshape(-1, 2).unbind(1)
    made = ops.coo_to_csc(sources, ends, num_nodes)
    return EdgeSet(made.indptr, made.indices)


PAIRS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=12)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(PAIRS, st.integers(1, 5), st.sampled_from([1, 2, 100, 2**31 - 1]), KEYS)
def test_negatives_equal_the_reference(
    device: Device, dtype: torch.dtype, pairs: list[tuple[int, int]], ratio: int, bound: int, key: int
) -> None:
    given = torch.tensor(pairs, dtype=dtype).reshape(-1, 2)
    for found in results(device, lambda put: ops.sample_negatives(put(given), ratio, bound, key)):
        assert found.dtype == dtype
        assert found.tolist() == [list(pair) for pair in reference.sample_negatives(pairs, ratio, bound, key)]


def test_ids_beyond_32_bits() -> None:
    result = ops.sample_negatives(torch.tensor([[2**40, 2**40]]), 50, 2**41, key=1)
    assert (result[:, 0] == 2**40).all()
    assert result[1:, 1].max() > 2**32


def test_destinations_are_uniform_and_unrelated() -> None:
    pairs = torch.zeros(20_000, 2, dtype=torch.int64)
    drawn = ops.sample_negatives(pairs, 2, 12, key=5)[len(pairs) :, 1]
    check_counts(torch.bincount(drawn, minlength=12), torch.ones(12))
    check_unrelated(drawn[::2], drawn[1::2], 12)
    other = ops.sample_negatives(pairs, 2, 12, key=6)[len(pairs) :, 1]
    check_unrelated(drawn, other, 12)


def test_each_pair_is_a_function_of_the_key_and_its_place() -> None:
    found = ops.sample_negative_pairs(50, KEY, Population(30), Population(20))
    expected = [[bounded(draw(KEY, place, 0), 30), bounded(draw(KEY, place, 1), 20)] for place in range(50)]
    assert found.tolist() == expected
    assert ops.sample_negative_pairs(20, KEY, Population(30), Population(20)).tolist() == expected[:20]


def test_what_is_wrong_is_drawn_again() -> None:
    edges = columns([(source, end) for source in range(20) for end in range(source)], 20)
    found = ops.sample_negative_pairs(40, KEY, Population(20), Population(20), edges=edges)
    for place, pair in enumerate(found.tolist()):
        drawn = ([bounded(draw(KEY, place, number), 20) for number in (2 * a, 2 * a + 1)] for a in range(32))
        assert pair == next(pair for pair in drawn if pair[1] >= pair[0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_where_almost_all_are_wrong_one_that_is_right_is_found(dtype: torch.dtype) -> None:
    size, right = 60, (17, 42)
    everything = [(source, end) for source in range(size) for end in range(size) if (source, end) != right]
    edges = columns(everything, size, dtype)
    assert (
        ops.sample_negative_pairs(3, KEY, Population(size), Population(size), edges=edges).tolist() == [list(right)] * 3
    )
    fixed = torch.tensor([17, 17])
    assert ops.sample_negative_pairs(2, KEY, fixed, Population(size), edges=edges).tolist() == [list(right)] * 2


def test_where_all_are_wrong_it_says_so() -> None:
    edges = columns([(0, 0), (0, 1)], 2)
    with pytest.raises(ValueError, match="there is no negative for pair 1"):
        ops.sample_negative_pairs(2, KEY, torch.tensor([1, 0]), Population(2), edges=edges)
    late = Population(3, times=torch.tensor([5, 6, 7]))
    with pytest.raises(ValueError, match="there is no negative for pair 0"):
        ops.sample_negative_pairs(1, KEY, late, late, limits=torch.tensor([4]))


def test_without_limits_times_do_not_matter() -> None:
    late = Population(3, times=torch.tensor([5, 6, 7]))
    found = ops.sample_negative_pairs(9, KEY, late, late)
    assert torch.equal(found, ops.sample_negative_pairs(9, KEY, Population(3), Population(3)))


def test_nodes_are_drawn_in_proportion_to_their_weights() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0, 5.0, 0.0])
    nodes = Population(6, ops.cumulate_weights(torch.tensor([0, 6]), weights))
    found = ops.sample_negative_pairs(8000, KEY, nodes, nodes)
    for column in found.unbind(1):
        counts = torch.bincount(column, minlength=6)
        assert counts[weights == 0].tolist() == [0, 0, 0]
        expected = weights[weights > 0] * 1000
        # Chi-square with 2 degrees of freedom, p = 0.001.
        assert float(((counts[weights > 0] - expected) ** 2 / expected).sum()) < 13.8


def test_the_look_at_all_keeps_to_the_weights() -> None:
    weights = torch.full((4000,), 1000.0)
    weights[:2] = torch.tensor([1.0, 3.0])
    nodes = Population(4000, ops.cumulate_weights(torch.tensor([0, 4000]), weights), torch.arange(4000))
    sources, limits = torch.zeros(4000, dtype=torch.int64), torch.ones(4000, dtype=torch.int64)
    found = ops.sample_negative_pairs(4000, KEY, sources, nodes, limits=limits)
    assert found[:, 1].max() == 1
    assert 890 < int((found[:, 1] == 0).sum()) < 1110  # 1000 +- 4 standard deviations


def test_each_place_is_a_function_of_the_key_and_its_number() -> None:
    expected = [bounded(draw(KEY, number, 0), 30) for number in range(50)]
    assert ops.draw_places(50, KEY, 30).tolist() == expected
    assert ops.draw_places(20, KEY, 30).tolist() == expected[:20]


def test_by_weight_it_is_the_place_where_the_draw_falls() -> None:
    weights = [0.0, 2.0, 0.0, 1.0, 5.0, 0.0]
    units = reference.weights_to_units([0, 6], weights)
    sums = ops.cumulate_weights(torch.tensor([0, 6]), torch.tensor(weights))
    found = ops.draw_places(4000, KEY, 6, sums).tolist()
    assert found[:50] == [reference.find_by_weight(units, range(6), draw(KEY, number, 0)) for number in range(50)]
    counts = [found.count(place) for place in range(6)]
    assert counts[0] == counts[2] == counts[5] == 0
    assert [round(count / 500) for count in counts] == weights


def places_of(sums: torch.Tensor) -> torch.Tensor:
    return ops.draw_places(2, KEY, 3, sums)


def pairs_of(sums: torch.Tensor) -> torch.Tensor:
    return ops.sample_negative_pairs(1, KEY, torch.tensor([0]), Population(3, sums))


@pytest.mark.parametrize("drawn", [places_of, pairs_of])
def test_running_sums_are_checked_at_the_first_draw_alone(drawn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sums = torch.tensor([1, 3, 4])
    drawn(sums)
    sums[1] = 0
    drawn(sums)  # takes no pass over the sums
    with pytest.raises(ValueError, match="never fall and end above 0"):
        drawn(sums.clone())


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
