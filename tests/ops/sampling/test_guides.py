import random
from importlib import import_module
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import ID_DTYPES
from tests.ops.hops import sample_all

MODULE = import_module("graphfeed.ops.sampling.guides")
DEGREES = st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 40, 700]), min_size=1, max_size=6)


def skewed(degrees: list[int], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and running sums of weights of which few are large and some are 0."""
    chance = random.Random(seed)
    indptr = reference.running_sum(degrees)
    weights = [chance.choice([0, 1, 1 / (chance.random() + 1e-6), 1e-12]) for _ in range(indptr[-1])]
    return torch.tensor(indptr), torch.tensor(reference.cumulate_weights(indptr, weights), dtype=torch.int64)


def guide(indptr: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return guides even if they would not pay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "MISSED", 1 << 40)
        return ops.guide_sums(indptr, sums)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(DEGREES, st.integers(0, 2**32))
def test_a_guide_is_the_first_edge_that_its_share_may_choose(dtype: torch.dtype, degrees: list[int], seed: int) -> None:
    indptr, sums = skewed(degrees, seed)
    guides = guide(indptr.to(dtype), sums)
    for low, high in pairwise(indptr.tolist() if guides.numel() else []):
        own, total = sums[low:high].tolist(), int(sums[high - 1]) if high > low else 0
        for place, number in enumerate(guides[low:high].tolist() if total else []):
            # Draws are whole numbers, and the share of a draw is computed in floating point.
            border, slack, edge = place * total / (high - low), 1 + total * 1e-9, place + number
            assert own[edge] >= border - slack
            assert edge == 0 or own[edge - 1] <= border + slack


@pytest.mark.parametrize("what", ["made", "random", "none"])
@given(DEGREES, st.integers(0, 2**32), st.booleans(), st.sampled_from([1, 3, 20, 60]))
def test_draws_are_the_same_whatever_the_guides_say(
    what: str, degrees: list[int], seed: int, replace: bool, fanout: int
) -> None:
    indptr, sums = skewed(degrees, seed)
    torch.manual_seed(seed)
    found = {"made": guide(indptr, sums), "random": torch.randint(-(2**31), 2**31, sums.shape, dtype=torch.int32)}
    guided = ops.GuidedSums(sums, found[what]) if what in found else ops.GuidedSums(sums)
    indices, seeds = torch.randint(0, len(degrees), sums.shape), torch.arange(len(degrees))
    graph = indptr, indices, seeds, [fanout, 2], [seed, seed + 1]
    for only_new in (False, True):
        wanted, got = (
            sample_all(*graph, replace=replace, only_new=only_new, cumulative=weights) for weights in (sums, guided)
        )
        assert wanted is not None
        assert got is not None
        assert [[part.tolist() for part in hop] for hop in got] == [[part.tolist() for part in hop] for hop in wanted]


def test_guides_are_kept_where_few_edges_have_most_of_the_weight() -> None:
    indptr, even = torch.tensor([0, 0, 4000]), torch.rand(4000, generator=torch.manual_seed(0))
    assert ops.guide_sums(indptr, ops.cumulate_weights(indptr, even)).numel() == 0
    assert ops.guide_sums(indptr, ops.cumulate_weights(indptr, 1 / (even + 1e-6))).numel() == 4000


def test_sums_without_edges_or_weight_have_no_guides() -> None:
    for indptr in (torch.tensor([0]), torch.tensor([0, 0]), torch.tensor([0, 3])):
        assert guide(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64)).numel() == 0


def test_guides_of_another_number_or_dtype_are_refused() -> None:
    indptr, sums = torch.tensor([0, 2]), torch.tensor([1, 2])
    given = indptr, torch.tensor([0, 0]), torch.tensor([0]), [1], [1]
    with pytest.raises(ValueError, match="guides must have 2 values, one for each running sum, but has 1"):
        sample_all(*given, cumulative=ops.GuidedSums(sums, torch.zeros(1, dtype=torch.int32)))
    with pytest.raises(TypeError, match="guides"):
        sample_all(*given, cumulative=ops.GuidedSums(sums, torch.zeros(2)))
