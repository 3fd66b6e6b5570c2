"""The loader of events."""

from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.loader import TemporalDataLoader
from tests.kinds.digests import digest, digests
from tests.kinds.events import ITEMS, NUM_EVENTS, TIMES, USERS
from tests.kinds.refusals import check_refused

EVENTS = {"src": USERS, "dst": ITEMS, "t": TIMES, "msg": np.arange(2.0 * NUM_EVENTS).reshape(-1, 2)}


def load(**options: Any) -> TemporalDataLoader:
    return TemporalDataLoader(EVENTS, 50, 1.5, seed=3, **options)


def test_mini_batches_have_the_events_in_order_and_negatives() -> None:
    drawn = set()
    for number, batch in enumerate(load()):
        rows = slice(50 * number, 50 * number + 50)
        assert {name: getattr(batch, name).tolist() for name in EVENTS} == {
            name: own[rows].tolist() for name, own in EVENTS.items()
        }
        assert len(batch.neg_dst) == 75
        assert batch.n_id.tolist() == sorted({*USERS[rows], *ITEMS[rows], *batch.neg_dst.tolist()})
        drawn |= {*batch.neg_dst.tolist()}
    assert drawn == {*range(int(ITEMS.min()), int(ITEMS.max()) + 1)}


def test_there_are_no_negatives_unless_requested() -> None:
    (first, *_) = TemporalDataLoader(EVENTS, 50)
    assert "neg_dst" not in vars(first)
    assert first.n_id.tolist() == sorted({*USERS[:50], *ITEMS[:50]})


@pytest.mark.slow
def test_they_are_the_same_with_workers_and_resumed() -> None:
    expected = digests(load(num_workers=0))
    for options in ({"num_workers": 2}, {"num_workers": 2, "worker": "process"}):
        with load(**options) as loader:
            assert digests(loader) == expected
    with load(num_workers=2) as loader:
        batches = iter(loader)
        assert [digest(next(batches)) for _ in range(5)] == expected[:5]
        state = loader.state_dict()
    resumed = load()
    resumed.load_state_dict(state)
    assert digests(resumed) == expected[5:]


def test_events_out_of_order_are_refused() -> None:
    falling = EVENTS | {"t": torch.tensor([1, 3, 2])}
    check_refused([
        (lambda: TemporalDataLoader(falling), ValueError, r"t must not decrease, but t\[2\] is 2 after 3"),
        (lambda: TemporalDataLoader({"src": USERS}), ValueError, "must have 'src', 'dst' and 't', but has"),
        (lambda: TemporalDataLoader(EVENTS, 0), ValueError, "batch_size must be 1 or more, but is 0"),
        (lambda: TemporalDataLoader(EVENTS, 5, -1.0), ValueError, "neg_sampling_ratio must be 0 or more"),
    ])  # fmt: skip


def test_attributes_that_mini_batches_have_are_refused() -> None:
    events = {"src": [0], "dst": [1], "t": [1]}
    for name in ("key", "n_id", "neg_dst", "to"):
        with pytest.raises(ValueError, match=f"attributes \\['{name}'\\]"):
            TemporalDataLoader({**events, name: [7]})
    with pytest.raises(ValueError, match=r"t\[1\] is 5\.25 after 5\.75"):
        TemporalDataLoader({"src": [0, 1], "dst": [2, 3], "t": [5.75, 5.25]})
