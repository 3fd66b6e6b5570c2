"""Chi-square tests: whether counts are what chance alone would make of them."""

import torch

SIGMAS = 4.0
"""A right sampler fails one test in 30,000; the draws are keyed, so what passes once passes always."""


def critical(freedom: int, sigmas: float = SIGMAS) -> float:
    """Return what a chi-square statistic stays below, by the approximation of Wilson and Hilferty (1931)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + sigmas * spread**0.5) ** 3)


def check_chi_square(statistic: float, freedom: int) -> None:
    """Fail where the counts are further from the expected ones, or nearer, than chance makes them."""
    low, high = critical(freedom, -SIGMAS), critical(freedom)
    assert low <= statistic <= high, f"{statistic} is not in {low} .. {high}"


def check_counts(counts: torch.Tensor, chances: torch.Tensor) -> None:
    """Check independent trials: how often each outcome was seen against its chance."""
    counts, chances = counts.double().flatten(), chances.double().flatten()
    assert counts[chances == 0].sum() == 0, "what can't happen has happened"
    counts, chances = counts[chances > 0], chances[chances > 0]
    expected = counts.sum() * chances / chances.sum()
    assert expected.min() >= 5, "too few trials for this test"
    check_chi_square(float(((counts - expected) ** 2 / expected).sum()), counts.numel() - 1)


def check_unrelated(left: torch.Tensor, right: torch.Tensor, size: int) -> None:
    """Check that pairs of outcomes are spread evenly over all `size * size` pairs."""
    counts = torch.bincount(left * size + right, minlength=size * size)
    check_counts(counts, torch.ones(size * size))


def check_subsets(subsets: torch.Tensor, size: int) -> None:
    """Check random subsets of `0 .. size - 1`, one a row: are items, and pairs of items, in equally many?

    Pairs in subsets without replacement are not independent. Of their counts, what follows from those of the items is
    taken away; the rest has the same variance in each direction, and so its squares add up to a chi-square.
    """
    trials, count = subsets.shape
    member = torch.zeros(trials, size, dtype=torch.float64)
    member.scatter_(1, subsets, 1.0)
    assert (member.sum(1) == count).all(), "an item occurs twice"
    left = size - count
    items = member.sum(0)
    variance = trials * count * left / (size * (size - 1))
    check_chi_square(float(((items - trials * count / size) ** 2).sum() / variance), size - 1)
    if min(count, left) < 2:
        return
    pairs = member.T @ member
    pairs.fill_diagonal_(0)
    sums = pairs.sum(1)
    rest = pairs - (sums[:, None] + sums) / (size - 2) + sums.sum() / ((size - 1) * (size - 2))
    upper = rest[torch.triu(torch.ones_like(rest, dtype=torch.bool), diagonal=1)]
    variance = trials * count * (count - 1) * left * (left - 1) / (size * (size - 1) * (size - 2) * (size - 3))
    check_chi_square(float((upper**2).sum() / variance), size * (size - 3) // 2)


def check_orders(orders: torch.Tensor) -> None:
    """Check random orders of `0 .. size - 1`, one a row: is each item at each place equally often?"""
    trials, size = orders.shape
    places = torch.arange(size).expand_as(orders)
    counts = torch.bincount((places * size + orders).flatten(), minlength=size * size).double()
    statistic = ((counts - trials / size) ** 2).sum() * (size - 1) / trials
    check_chi_square(float(statistic), (size - 1) ** 2)
