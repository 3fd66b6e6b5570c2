"""Steps of an optimizer on some rows, compared with float64 references and with torch's optimizers."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from graphfeed.ops import StepRule, draw_rows, train_rows
from graphfeed.ops.random import draw
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

RULES = [
    StepRule("sgd", 0.5),
    StepRule("rowwise", 0.5, 1e-10),
    StepRule("adagrad", 0.5, 1e-10),
    StepRule("adam", 0.5, 1e-8, (0.7, 0.95)),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
FLOATS = [torch.float32, torch.float64]


def tables(count: int, size: int, rule: StepRule, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return rows and their state before the first step."""
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [rows.to(dtype), torch.zeros(count, rule.width(size), dtype=dtype)]


def gradients_of(count: int, size: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def reference(
    rows: list[list[float]], states: dict[int, list[list[float]]], node: int, gradient: list[float], rule: StepRule
) -> None:
    """Update one row with Python's numbers."""
    past = states.setdefault(node, [])
    past.append(gradient)
    for column, own in enumerate(gradient):
        if rule.name == "sgd":
            change = own
        elif rule.name == "rowwise":
            change = own / (sum(sum(g * g for g in each) / len(each) for each in past) ** 0.5 + rule.eps)
        elif rule.name == "adagrad":
            change = own / (sum(each[column] ** 2 for each in past) ** 0.5 + rule.eps)
        else:
            mean = square = 0.0
            for each in past:
                mean = rule.betas[0] * mean + (1 - rule.betas[0]) * each[column]
                square = rule.betas[1] * square + (1 - rule.betas[1]) * each[column] ** 2
            mean, square = (
                moment / (1 - beta ** len(past)) for moment, beta in zip((mean, square), rule.betas, strict=True)
            )
            change = mean / (square**0.5 + rule.eps)
        rows[node][column] -= rule.lr * change


@each_rule
@given(
    steps=st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=4),
    size=st.integers(1, 9),
    dtype=st.sampled_from(FLOATS),
    ids_dtype=st.sampled_from([torch.int32, torch.int64]),
    mean=st.booleans(),
)
def test_a_step_is_that_of_the_formula(
    rule: StepRule, steps: list[list[int]], size: int, dtype: torch.dtype, ids_dtype: torch.dtype, mean: bool
) -> None:
    rows, state = tables(7, size, rule, dtype)
    past: dict[int, list[list[float]]] = {}
    expected, rule = rows.tolist(), rule._replace(mean=mean)
    for number, ids in enumerate(steps):
        gradients = gradients_of(len(ids), size, number, dtype)
        train_rows(rows, state, torch.tensor(ids, dtype=ids_dtype), gradients, rule)
        for node in set(ids):
            own = gradients.double()[[place for place, other in enumerate(ids) if other == node]]
            reference(expected, past, node, (own.mean(0) if mean else own.sum(0)).tolist(), rule)
    close = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(
        rows.double(), torch.tensor(expected, dtype=torch.float64).reshape(7, size), rtol=close, atol=close
    )


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (StepRule("sgd", 0.1), lambda own: torch.optim.SGD(own, lr=0.1)),
        (StepRule("adagrad", 0.1), lambda own: torch.optim.Adagrad(own, lr=0.1)),
        (StepRule("adam", 0.1, 1e-8), lambda own: torch.optim.SparseAdam(own, lr=0.1)),
    ],
    ids=["SGD", "Adagrad", "SparseAdam"],
)
def test_torchs_sparse_optimizers_update_alike(rule: StepRule, make: Any) -> None:
    rows, state = tables(50, 6, rule)
    other = nn.Embedding(50, 6, sparse=True, _weight=rows.clone())
    optimizer = make(other.parameters())
    for number in range(8):
        # SparseAdam counts the steps of the table, so each step of it has all rows here.
        ids = torch.cat([torch.arange(50)[:: 1 if rule.name == "adam" else 3], torch.tensor([4, 4, 7])])
        gradients = gradients_of(len(ids), 6, number)
        train_rows(rows, state, ids, gradients, rule)
        optimizer.zero_grad()
        other(ids).backward(gradients)
        optimizer.step()
    torch.testing.assert_close(rows, other.weight.detach(), rtol=1e-4, atol=2e-5)


def test_adam_counts_the_steps_of_each_row() -> None:
    rule = StepRule("adam", 0.1, 1e-8)
    rows, state = tables(5, 3, rule)
    parameters = [nn.Parameter(row.clone()) for row in rows]
    optimizers = [torch.optim.Adam([own], lr=0.1) for own in parameters]
    for number, ids in enumerate([[0, 1], [1, 4], [1], [0, 4], [2]]):
        gradients = gradients_of(len(ids), 3, number)
        train_rows(rows, state, torch.tensor(ids), gradients, rule)
        for node, gradient in zip(ids, gradients, strict=True):
            parameters[node].grad = gradient
            optimizers[node].step()
    torch.testing.assert_close(rows, torch.stack([own.detach() for own in parameters]), rtol=1e-5, atol=1e-6)


@each_rule
def test_other_rows_and_the_gradients_are_unchanged_and_the_bits_do_not_depend_on_the_rest(rule: StepRule) -> None:
    rows, state = tables(1000, 5, rule)
    before, ids = rows.clone(), torch.tensor([7, 999, 7, 0])
    gradients = gradients_of(4, 5, 0)
    given = gradients.clone()
    train_rows(rows, state, ids, gradients, rule)
    assert_same(gradients, given)
    others = torch.ones(1000, dtype=torch.bool)
    others[ids] = False
    assert_same(rows[others], before[others])
    assert not state[others].any()
    # The same rows, in a table of their own.
    small, own = tables(3, 5, rule)
    small.copy_(before[[0, 7, 999]])
    train_rows(
        small,
        own,
        torch.tensor([0, 1, 2]),
        torch.stack([gradients[3], gradients[0] + gradients[2], gradients[1]]),
        rule,
    )
    assert_same(small, rows[[0, 7, 999]])
    assert_same(own, state[[0, 7, 999]])


def test_the_first_rows_are_draws_by_key_row_and_column() -> None:
    for dtype in FLOATS:
        rows = torch.empty(6, 3, dtype=dtype)
        ids = torch.tensor([4, 5, 0, 9, 5, 1 << 40])
        draw_rows(rows, ids, 99, 0.5)
        for row, number_of_row in enumerate(ids.tolist()):
            for column in range(3):
                number = (draw(99, number_of_row, column) >> 40) - (1 << 23)
                assert rows[row, column] == torch.tensor(number / (1 << 23) * 0.5, dtype=dtype)
    many = torch.empty(20_000, 2)
    draw_rows(many, torch.arange(20_000, dtype=torch.int32), 1, 1.0)
    # Ten equal parts: chi-square with 9 degrees of freedom is below 27.9 with probability 0.999.
    counts = np.histogram(many.numpy(), 10, (-1, 1))[0]
    assert ((counts - 4000.0) ** 2 / 4000).sum() < 27.9


def test_what_does_not_fit_is_named_and_changes_nothing() -> None:
    rule = RULES[2]
    rows, state = tables(4, 2, rule)
    before, ids, ones = rows.clone(), torch.tensor([0, 3]), torch.ones(2, 2)
    check_refused(
        [
            (lambda: train_rows(rows, state, torch.tensor([0, 4]), ones, rule), IndexError, "0 .. 3, but holds 4"),
            (lambda: train_rows(rows, state, torch.tensor([-1, 0]), ones, rule), IndexError, "holds -1"),
            (lambda: train_rows(rows, state, ids, ones.double(), rule), TypeError, "gradients must be torch.float32"),
            (lambda: train_rows(rows, state, ids, ones[:1], rule), ValueError, r"gradients must have shape \(2, 2\)"),
            (lambda: train_rows(rows, state[:, :1], ids, ones, rule), ValueError, r"state must have shape \(4, 2\)"),
            (lambda: train_rows(rows.T.contiguous().T, state, ids, ones, rule), ValueError, "must be contiguous"),
            (lambda: train_rows(rows.int(), state, ids, ones, rule), TypeError, "state must be|rows must be"),
            (lambda: train_rows(rows, state, ids, ones, rule._replace(name="adamw")), ValueError, "must be one of"),
            (lambda: draw_rows(rows, ids, 0, 1.0), ValueError, "one value for each of the 4 rows, but has 2"),
            (lambda: draw_rows(rows[0], ids, 0, 1.0), ValueError, "2 dimensions"),
        ]
    )
    assert_same(rows, before)
    assert not state.any()
