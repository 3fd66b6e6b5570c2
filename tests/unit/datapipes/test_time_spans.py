"""Mini-batches by time span."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from tests.kinds.events import TIMES, check_same_everywhere, event_items
from tests.kinds.refusals import check_refused

ANY: Any = gf


def spans(times: Any, every: int, **options: Any) -> list[list[int]]:
    items = gf.ItemSet((len(times), torch.tensor(times)), names=("seeds", "timestamp"))
    return [batch.seeds.tolist() for batch in gf.ItemSampler(items, every=every, **options)]


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=40), st.integers(1, 50))
def test_a_mini_batch_has_the_items_of_a_span(times: list[int], every: int) -> None:
    rising, expected = sorted(times), dict[int, list[int]]()
    for row, time in enumerate(rising):
        expected.setdefault(math.floor(time / every), []).append(row)
    assert spans(rising, every) == [*expected.values()]
    assert sorted(spans(rising, every, shuffle=True)) == [*expected.values()]


def test_any_mini_batch_is_found_from_its_index() -> None:
    pipe: Any = gf.ItemSampler(event_items(), every=7, shuffle=True, seed=3)
    in_order = [batch.timestamp.tolist() for batch in pipe]
    assert len(in_order) == len(pipe) == len(np.unique(TIMES // 7))
    assert [pipe.minibatch(index).timestamp.tolist() for index in reversed(range(len(pipe)))] == in_order[::-1]
    assert in_order != [batch.timestamp.tolist() for batch in pipe.with_seed(3, epoch=1)]
    assert len(pickle.dumps(gf.ItemSampler(event_items(), every=1))) < 1 << 16


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_spans_are_the_same_everywhere(shuffle: bool) -> None:
    check_same_everywhere(gf.ItemSampler(event_items(), every=9, shuffle=shuffle))


def test_what_has_no_spans_is_refused() -> None:
    plain, typed = gf.ItemSet(3, names="seeds"), gf.HeteroItemSet({"a": gf.ItemSet(3, names="seeds")})
    check_refused([
        (lambda: spans([1, 5, 4], 2), ValueError, r"timestamp must not decrease, but timestamp\[2\] is 4 after 5"),
        (lambda: spans([1.5, 2.0], 2), TypeError, "timestamp must be torch.int64, but is torch.float32"),
        (lambda: spans([1, 2], 0), ValueError, "every must be 1 or more, but is 0"),
        (lambda: gf.ItemSampler(plain, every=5), ValueError, "every needs items .* with a member named 'timestamp'"),
        (lambda: gf.ItemSampler(typed, every=5), ValueError, "every needs items without types and groups"),
        (lambda: gf.ItemSampler(event_items(), 5, every=5), ValueError, "leave out batch_size and drop_last"),
        (lambda: ANY.ItemSampler(event_items(), every=9).minibatch(99), IndexError, "must be in 0 .. 33, but is 99"),
        (lambda: gf.ItemSampler(plain), TypeError, "batch_size is missing; give the number of items"),
    ])  # fmt: skip
