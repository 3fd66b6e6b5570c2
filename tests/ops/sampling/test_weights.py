import random
from contextlib import nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import DEGREES, ID_DTYPES

DTYPES = [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64]
LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324
UNITS = 2**31
MODULE = import_module("graphfeed.ops.structure.csc")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("indptr_dtype", ID_DTYPES, ids=str)
@given(st.lists(DEGREES, max_size=8), st.integers(0, 2**32))
def test_equal_to_the_reference(dtype: torch.dtype, indptr_dtype: torch.dtype, degrees: list[int], seed: int) -> None:
    chance = random.Random(seed)
    indptr = reference.running_sum(degrees)
    values = [chance.choice([0, 0, 1, 1e-5, 7, chance.random(), chance.expovariate(0.1)]) for _ in range(indptr[-1])]
    weights = torch.tensor(values, dtype=dtype)
    result = ops.cumulate_weights(torch.tensor(indptr, dtype=indptr_dtype), weights)
    assert result.dtype == torch.int64
    assert result.tolist() == reference.cumulate_weights(indptr, [float(weight) for weight in weights.tolist()])


@pytest.mark.parametrize("part", [1, 3, 100])
def test_done_in_parts_with_a_progress_bar(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    indptr = torch.tensor([0, 0, 4, 5, 5, 9, 9])
    weights = torch.tensor([1.0, 0, 3, 2, 5, 0, 0, 1, 4])
    bar = SimpleNamespace(update=steps.append)
    monkeypatch.setattr(MODULE, "PART_EDGES", part)
    monkeypatch.setattr(MODULE, "progress_bar", lambda *_, **__: nullcontext(bar))
    assert ops.cumulate_weights(indptr, weights).tolist() == reference.cumulate_weights(
        indptr.tolist(), weights.tolist()
    )
    assert sum(steps) == 9
    assert (len(steps) > 1) == (part < 9)


def test_the_largest_of_a_column_counts_all_units() -> None:
    result = ops.cumulate_weights(torch.tensor([0, 2, 4]), torch.tensor([1.0, 3.0, 0.0, 0.25]))
    assert result.tolist() == [round(UNITS / 3), round(UNITS / 3) + UNITS, 0, UNITS]


def test_trues_of_a_mask_count_alike_and_false_nothing() -> None:
    first, *rest = ops.cumulate_weights(torch.tensor([0, 4]), torch.tensor([True, False, True, True])).tolist()
    assert first > 0
    assert rest == [first, 2 * first, 3 * first]


def test_a_weight_however_small_counts() -> None:
    indptr = torch.tensor([0, 3, 5])
    weights = torch.tensor([SMALLEST, 0.0, LARGEST, SMALLEST, SMALLEST], dtype=torch.float64)
    assert ops.cumulate_weights(indptr, weights).tolist() == [1, 1, 1 + UNITS, UNITS, 2 * UNITS]


def test_sums_of_long_columns_fit() -> None:
    count = 1 << 20
    result = ops.cumulate_weights(torch.tensor([0, count]), torch.ones(count))
    assert int(result[-1]) == count * UNITS


@pytest.mark.parametrize("indptr", [[0], [0, 0, 0]])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_edges(indptr: list[int], dtype: torch.dtype) -> None:
    assert ops.cumulate_weights(torch.tensor(indptr), torch.tensor([], dtype=dtype)).tolist() == []


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (torch.ones(2), ValueError, "weights must have 3 values, one per edge, but has 2"),
        (torch.ones(4), ValueError, "weights must have 3 values, one per edge, but has 4"),
        (torch.ones(3, 1), ValueError, r"weights must have 1 dimension, but has shape \(3, 1\)"),
        (torch.ones(3, dtype=torch.int64), TypeError, "weights must be .* or torch.float64, but is torch.int64"),
        ([1.0, 1.0, 1.0], TypeError, "weights must be a torch.Tensor, but is a list"),
        (torch.tensor([1, -0.5, 2]), ValueError, "weights must be finite and not negative, .* from -0.5 to 2.0"),
        (torch.tensor([1, float("inf"), 2]), ValueError, "weights must be finite .* from 1.0 to inf"),
        (torch.tensor([1, float("nan"), 2]), ValueError, "weights must be finite .* from nan to nan"),
        (torch.tensor([1, -1, 2], dtype=torch.float16), ValueError, "not negative, .* from -1.0 to 2.0"),
        (torch.tensor([1, float("nan"), 2], dtype=torch.bfloat16), ValueError, "from nan to nan"),
    ],
)
def test_wrong_weights_are_named(weights: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.cumulate_weights(torch.tensor([0, 2, 3]), weights)
