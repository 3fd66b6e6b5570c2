"""Weighted draws of many columns at once: what columns of a small random graph don't meet."""

from itertools import product

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.random import bounded, draw
from tests import reference
from tests.ops.hops import sample_one

HUB = 300_000


SEEDS = [0, 1, 2, *range(2, 79), 0]


def make_columns(weights: torch.Tensor) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Return column starts, units and running sums: a column of all weights, one of a single edge, many of 0 to 76."""
    sizes = torch.tensor([len(weights), 1, *range(77)])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    every = torch.cat([weights, torch.rand(int(indptr[-1]) - len(weights), generator=torch.manual_seed(1))])
    every[len(weights) + 1 :: 3] = 0
    cumulative = ops.cumulate_weights(indptr, every)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), cumulative[:-1]])
    before[indptr[:-1][sizes > 0]] = 0
    return indptr, (cumulative - before).tolist(), cumulative


def draw_edges(
    indptr: torch.Tensor, cumulative: torch.Tensor, seeds: list[int], fanout: int, key: int, *, replace: bool
) -> ops.Picks:
    columns = ops.StaticGraph(indptr, cumulative=cumulative)
    return sample_one(columns, torch.tensor(seeds), torch.tensor([fanout]), key, replace=replace)


def make_weights(kind: str, size: int) -> torch.Tensor:
    values = torch.rand(size, generator=torch.manual_seed(0))
    if kind == "equal":
        return torch.ones(size)
    if kind == "skewed":  # the guess by equal weights is far off
        return 1 / (values + 1e-7)
    if kind == "rising":
        return torch.arange(size, dtype=torch.float64) ** 8
    return torch.where(values < 0.99, 0.0, values)


@pytest.mark.parametrize("kind", ["equal", "skewed", "rising", "mostly zero"])
def test_equal_to_the_reference_for_more_columns_than_a_block(kind: str) -> None:
    indptr, units, cumulative = make_columns(make_weights(kind, 700))
    for replace, fanout in product([False, True], [1, 7, 20, 60]):
        picks = draw_edges(indptr, cumulative, SEEDS, fanout, 5, replace=replace)
        expected = reference.sample_neighbors(indptr.tolist(), SEEDS, [fanout], 5, replace, units)
        assert picks.offsets.tolist() == reference.running_sum(map(len, expected)), (replace, fanout)
        assert picks.positions.tolist() == reference.join(expected), (replace, fanout)


def draw_one_by_one(units: list[int], count: int, key: int, *, replace: bool) -> list[int]:
    """Return what `reference.pick` gives for the column of node 0, by NumPy, as a list takes hours for a hub."""
    left, found = np.array(units), []
    for number in range(count):
        ends = left.cumsum()
        target = bounded(draw(key, 0, number, None), int(ends[-1]))
        found.append(int(np.searchsorted(ends, target, side="right")))
        if not replace:
            left[found[-1]] = 0
    return found if replace else sorted(found)


@pytest.mark.parametrize("kind", ["equal", "skewed", "rising"])
def test_a_hub_draws_by_the_same_law(kind: str) -> None:
    indptr, units, cumulative = make_columns(make_weights(kind, HUB))
    for replace in (False, True):
        picks = draw_edges(indptr, cumulative, [0], 20, 5, replace=replace)
        assert picks.positions.tolist() == draw_one_by_one(units[:HUB], 20, 5, replace=replace)


def test_weight_0_is_never_drawn_at_the_ends_of_a_column() -> None:
    weights = torch.zeros(HUB)
    weights[[0, 1, HUB // 2, HUB - 2]] = torch.tensor([1e-30, 1.0, 1e-30, 1.0])
    indptr, units, cumulative = make_columns(weights)
    for replace, fanout in ((False, 3), (False, 4), (False, 9), (True, 50)):
        picks = draw_edges(indptr, cumulative, [0], fanout, 9, replace=replace)
        found = picks.positions.tolist()
        assert len(found) == (fanout if replace else min(fanout, 4))
        assert all(units[edge] > 0 for edge in found)
