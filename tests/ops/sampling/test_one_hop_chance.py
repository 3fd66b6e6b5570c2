"""The third law: neighbours are drawn evenly, or by their weights, and so are pairs of them."""

from itertools import combinations, permutations, product
from math import comb

import pytest
import torch

from graphfeed import ops
from tests.ops.chance import check_counts, check_subsets, check_unrelated
from tests.ops.graphs import equal_columns
from tests.ops.hops import sample_one

WEIGHTS = torch.tensor([4.0, 0.0, 1.0, 2.5, 0.5, 0.0])


def sample_alike(degree: int, fanout: int, trials: int, *, replace: bool = False, key: int = 1) -> torch.Tensor:
    """Sample as many nodes with as many neighbours each; return the picks, one node a row."""
    indptr = equal_columns(trials, degree)
    picks = sample_one(ops.StaticGraph(indptr), torch.arange(trials), torch.tensor([fanout]), key, replace=replace)
    return picks.positions.reshape(trials, -1) - indptr[:-1, None]


def sample_weighted(fanout: int, trials: int, *, replace: bool) -> torch.Tensor:
    indptr = equal_columns(trials, WEIGHTS.numel())
    columns = ops.StaticGraph(indptr, cumulative=ops.cumulate_weights(indptr, WEIGHTS.repeat(trials)))
    picks = sample_one(columns, torch.arange(trials), torch.tensor([fanout]), 2, replace=replace)
    return picks.positions.reshape(trials, -1) - indptr[:-1, None]


def count_sets(picks: torch.Tensor, size: int) -> torch.Tensor:
    """Count how often each set of picks was drawn, in the order of `combinations`."""
    numbers = {members: number for number, members in enumerate(combinations(range(size), picks.shape[1]))}
    drawn = [numbers[tuple(row)] for row in picks.sort(dim=1).values.tolist()]
    return torch.bincount(torch.tensor(drawn), minlength=len(numbers))


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (10, 9), (60, 49), (200, 5), (300, 120)])
def test_neighbors_and_pairs_are_drawn_evenly(degree: int, fanout: int) -> None:
    check_subsets(sample_alike(degree, fanout, trials=6000), degree)


def test_sets_are_drawn_evenly() -> None:
    picks = sample_alike(6, 3, trials=6000)
    check_counts(count_sets(picks, 6), torch.ones(comb(6, 3)))


def test_one_node_gets_even_draws_over_the_batches() -> None:
    columns, node, fanouts = ops.StaticGraph(equal_columns(4, 6)), torch.tensor([2]), torch.tensor([3])
    keys = [ops.Key(seed=0, epoch=0, index=index).at(0) for index in range(3000)]
    picks = [sample_one(columns, node, fanouts, key).positions for key in keys]
    check_subsets(torch.stack(picks) - 2 * 6, 6)


@pytest.mark.parametrize(("degree", "fanout"), [(10, 4), (200, 60)])
def test_with_replacement_each_draw_is_even(degree: int, fanout: int) -> None:
    picks = sample_alike(degree, fanout, trials=6000, replace=True)
    check_counts(torch.bincount(picks.flatten(), minlength=degree), torch.ones(degree))
    check_unrelated(picks[:, 0] * 2 // degree, picks[:, 1] * 2 // degree, 2)
    check_unrelated(picks[:, ::2].flatten() * 2 // degree, picks[:, 1::2].flatten() * 2 // degree, 2)


@pytest.mark.parametrize("fanout", [3, 60])
def test_with_replacement_each_draw_follows_the_weights(fanout: int) -> None:
    picks = sample_weighted(fanout, trials=6000, replace=True)
    for draw in (0, fanout - 1):
        check_counts(torch.bincount(picks[:, draw], minlength=WEIGHTS.numel()), WEIGHTS)
    counts = torch.bincount(picks[:, 0] * WEIGHTS.numel() + picks[:, 1], minlength=WEIGHTS.numel() ** 2)
    check_counts(counts, WEIGHTS[:, None] * WEIGHTS)


def chance_of_sets(fanout: int) -> torch.Tensor:
    """Return how likely each set is if edges are drawn one after the other by weight, summed over all orders."""
    weights = WEIGHTS.tolist()
    chances = dict.fromkeys(combinations(range(len(weights)), fanout), 0.0)
    for order in permutations(range(len(weights)), fanout):
        chance, left = 1.0, sum(weights)
        for edge in order:
            chance *= weights[edge] / left if left else 0
            left -= weights[edge]
        chances[tuple(sorted(order))] += chance
    return torch.tensor(list(chances.values()))


@pytest.mark.parametrize("fanout", [1, 3])
def test_sets_follow_the_weights(fanout: int) -> None:
    picks = sample_weighted(fanout, trials=20000, replace=False)
    chances = chance_of_sets(fanout)
    assert abs(float(chances.sum()) - 1) < 1e-6
    check_counts(count_sets(picks, WEIGHTS.numel()), chances)


def test_equal_weights_are_drawn_as_without_weights() -> None:
    indptr = equal_columns(6000, 60)
    columns = ops.StaticGraph(indptr, cumulative=ops.cumulate_weights(indptr, torch.full((60 * 6000,), 0.3)))
    picks = sample_one(columns, torch.arange(6000), torch.tensor([20]), 3)
    check_subsets(picks.positions.reshape(6000, 20) - indptr[:-1, None], 60)


def test_weight_0_is_never_drawn() -> None:
    weights = torch.rand(64 * 100) * (torch.rand(64 * 100) < 0.5)
    weights[:64] = 0
    weights[64] = 1e-30
    indptr = equal_columns(100, 64)
    columns = ops.StaticGraph(indptr, cumulative=ops.cumulate_weights(indptr, weights))
    for replace, fanout, key in product([False, True], [1, 10, 49, 100, -1], range(10)):
        picks = sample_one(columns, torch.arange(100), torch.tensor([fanout]), key, replace=replace)
        assert picks.offsets[1] == 0, f"a node whose edges all have weight 0, with {fanout} and {replace}"
        assert weights[picks.positions].min() > 0, (fanout, replace)


@pytest.mark.parametrize(("fanout", "replace"), [(1, False), (3, False), (3, True)])
def test_each_edge_type_is_drawn_evenly_and_apart_from_the_others(fanout: int, replace: bool) -> None:
    trials, degree = 6000, 8
    indptr = equal_columns(trials, 3 * degree)
    types = torch.arange(3).repeat_interleave(degree).repeat(trials)
    fanouts = torch.tensor([fanout, 0, fanout])
    graph = ops.StaticGraph(indptr, types=types, num_types=3)
    picks = sample_one(graph, torch.arange(trials), fanouts, 4, replace=replace)
    columns = picks.positions.reshape(trials, 2 * fanout) - indptr[:-1, None]
    first, last = columns[:, :fanout], columns[:, fanout:] - 2 * degree
    for part in (first, last):
        if replace:
            check_counts(torch.bincount(part.flatten(), minlength=degree), torch.ones(degree))
        else:
            check_subsets(part, degree)
    if fanout == 1:
        check_unrelated(first[:, 0], last[:, 0], degree)


def test_the_hops_batches_epochs_and_nodes_are_unrelated() -> None:
    def picks_of(seed: int, epoch: int, index: int, hop: int) -> torch.Tensor:
        return sample_alike(8, 1, trials=6000, key=ops.Key(seed, epoch, index).at(1, hop))[:, 0]

    picks = picks_of(0, 1, 2, 0)
    for other in ((0, 1, 2, 1), (0, 1, 3, 0), (0, 2, 2, 0), (1, 1, 2, 0), (0, 2, 1, 0)):
        check_unrelated(picks, picks_of(*other), 8)
    check_unrelated(picks[::2], picks[1::2], 8)
