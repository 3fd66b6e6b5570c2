"""LABOR: columns that share neighbours choose the same ones, and each is as likely as by itself."""

import math
import random
import threading
from functools import partial
from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.random import UPPER, high_bits, mix
from tests.kinds import reference
from tests.kinds.chance import check_counts, check_subsets
from tests.kinds.graphs import split
from tests.kinds.hops import record, sample_one

WEIGHTS = torch.tensor([4.0, 0.0, 1.0, 2.5, 0.5, 0.0])


sample_labor = partial(sample_one, method="labor")


@pytest.mark.parametrize("share", [0, 2**63])
def test_ids_above_32_bits_are_told_apart(share: int) -> None:
    """Nodes in pairs whose variates have equal upper halves under the first key: the lower halves decide."""
    keys, rng = (7, 8), random.Random(0)
    half, key = 2**32, mix(7)
    below = [rng.randrange(half) for _ in range(40)]
    above = [half + ((((node ^ key) % half) - UPPER) % half ^ key % half) for node in below]
    assert [high_bits(key, node) for node in below] == [high_bits(key, node) for node in above]
    for fanout in range(1, 9):
        indices = rng.sample(below + above, 80)
        graph = record(torch.tensor([0, 80]), torch.tensor(indices))
        picks = sample_labor(graph, torch.tensor([0]), torch.tensor([fanout]), *keys, switch_threshold=share)
        expected = reference.pick_edges(reference.Graph([0, 80], indices), [0], [fanout], (keys, share), "labor")
        assert split(picks) == expected


def sample_column(fanout: int, units: list[int]) -> list[int]:
    """Sample a column with replacement, in a thread, since a kernel that doesn't end can't be stopped."""
    size, made = len(units), list[ops.Picks]()
    cumulative = torch.tensor(units).cumsum(0) if set(units) != {1} else None
    graph = record(torch.tensor([0, size]), torch.arange(size), cumulative=cumulative)

    def sample() -> None:
        made.append(sample_labor(graph, torch.tensor([0]), torch.tensor([fanout]), 1, 2, replace=True))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    thread.join(timeout=100)
    assert not thread.is_alive(), "it never ends"
    return split(made[0])[0]


def test_weights_beyond_all_limits_are_sampled() -> None:
    """Of a column of 2**56 units so few events lie below its first limit that the limit is 0, and has to grow."""
    units = [2**55, 2**55]
    graph = reference.Graph([0, 2], [0, 1], units=units)
    expected = reference.pick_edges(graph, [0], [3], ((1, 2), 0), "labor", replace=True)
    assert sample_column(3, units) == expected[0]


def test_more_picks_than_a_clock_can_tell_apart_are_made() -> None:
    """Times end at 2**16 periods, after some 45,426 events; what is wanted beyond goes to the first edge."""
    assert sample_column(65_535, [1]) == [0] * 65_535
    second = sample_column(100_000, [1, 1]).count(1)
    assert second == pytest.approx(65_536 * math.log(2), rel=0.02)
    assert sample_column(200_000, [2, 3, 1]).count(1) > 150_000


def sample_one_column(
    degree: int, fanout: int, trials: int, weights: torch.Tensor | None = None, **drawing: Any
) -> torch.Tensor:
    """Sample as many columns, none with a neighbour of another; return the places of the picks, one trial a row."""
    indptr = torch.arange(trials + 1) * degree
    sums = None if weights is None else ops.cumulate_weights(indptr, weights.repeat(trials))
    graph = record(indptr, torch.arange(trials * degree), cumulative=sums)
    picks = sample_labor(graph, torch.arange(trials), torch.tensor([fanout]), 3, 4, **drawing)
    return picks.positions.reshape(trials, -1) - indptr[:-1, None]


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (20, 10), (300, 120)])
def test_neighbors_and_pairs_are_equally_likely(degree: int, fanout: int) -> None:
    for share in (0, 2**63):
        check_subsets(sample_one_column(degree, fanout, 20_000 * 20 // degree, switch_threshold=share), degree)


@pytest.mark.parametrize("fanout", [1, 5])
def test_choices_with_replacement_follow_the_weights(fanout: int) -> None:
    for weights in (WEIGHTS, torch.ones(6)):
        picks = sample_one_column(6, fanout, 20_000, weights, replace=True)
        check_counts(torch.bincount(picks.flatten(), minlength=6), weights)


def test_pairs_with_replacement_are_independent() -> None:
    picks = sample_one_column(6, 2, 20_000, WEIGHTS, replace=True)  # each pair in order
    chances = WEIGHTS[:, None] * WEIGHTS
    expected = torch.triu(chances, 1) * 2 + torch.diag(chances.diag())
    check_counts(torch.bincount(picks[:, 0] * 6 + picks[:, 1], minlength=36), expected)


def test_columns_choose_the_same_neighbors() -> None:
    """Columns of equal neighbours choose alike; and of two columns, common neighbours that one passed by stay out."""
    rng = random.Random(0)
    columns = [sorted(rng.sample(range(40), 20)) for _ in range(50)]
    columns += columns[:5]
    indptr, indices = torch.arange(len(columns) + 1) * 20, torch.tensor(columns).flatten()
    picks = sample_labor(record(indptr, indices), torch.arange(len(columns)), torch.tensor([5]), 1, 1)
    chosen = [set(indices[part].tolist()) for part in split(picks)]
    assert chosen[:5] == chosen[50:]
    assert len(set(map(frozenset, chosen))) > 10
    for one, own in zip(columns, chosen, strict=True):
        for other, its in zip(columns, chosen, strict=True):
            common = set(one) & set(other)
            mine, theirs = own & common, its & common
            assert mine <= theirs or theirs <= mine


def test_a_growing_share_changes_each_variate_once() -> None:
    steps = 16
    graph, asked = record(torch.arange(4001) * 2, torch.arange(8000)), (torch.arange(4000), torch.tensor([1]))

    def choose(period: int, step: int) -> torch.Tensor:
        share = step * 2**64 // steps
        return sample_labor(graph, *asked, period, period + 1, switch_threshold=share).positions

    first = choose(0, 0)
    same = [float((choose(0, step) == first).double().mean()) for step in range(steps)]
    assert same == sorted(same, reverse=True)
    # If one of the two variates is drawn again, the choice changes with probability 1/2.
    for step, share in enumerate(same):
        kept = (1 - step / steps) ** 2
        assert share == pytest.approx(kept + (1 - kept) * 0.5, abs=0.12)
    assert torch.equal(choose(1, 0), sample_labor(graph, *asked, 1, 9).positions)
