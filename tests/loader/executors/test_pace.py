import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, cycle

import pytest

import graphfeed as gf
from graphfeed.loader.executors import pace
from graphfeed.loader.executors.pace import LOOKS, PATIENCE_SECONDS, QUICK_SECONDS, Pace
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("no_leaks")

COUNT = 8 * LOOKS


class Clock:
    """Goes on by as much at each look as it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Stamp(gf.Transform):
    """Writes down who works."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        minibatch.thread = threading.current_thread()  # type: ignore[attr-defined]
        return minibatch


def fail_late(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    if minibatch.seeds.tolist() == [COUNT - 2]:  # type: ignore[union-attr]
        raise ArithmeticError("late")
    return minibatch


def pipeline() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(COUNT, names="seeds"), batch_size=1, shuffle=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "perf_counter", clock)
    return clock


def here(loader: gf.DataLoader) -> list[bool]:
    return [batch.thread is threading.current_thread() for batch in loader]


def test_one_quick_mini_batch_among_several_in_threads_tells_that_all_are() -> None:
    it = Pace()
    for seconds in [1.0] * (LOOKS - 1) + [QUICK_SECONDS / 2]:
        assert not it.quick
        it.note(seconds)
    assert it.quick


def test_slow_mini_batches_stay_in_threads() -> None:
    it = Pace()
    for _ in range(10 * LOOKS):
        it.note(2 * QUICK_SECONDS)
        assert not it.quick


def test_a_single_late_mini_batch_is_paid_back_by_quick_ones() -> None:
    it = Pace()
    for _ in range(LOOKS):
        it.note(0.0)
    for _ in range(10):
        it.note(0.9 * PATIENCE_SECONDS)
        for _ in range(int(PATIENCE_SECONDS / QUICK_SECONDS) + 1):
            it.note(0.0)
    assert it.quick


def test_slow_ones_end_it_and_the_next_look_takes_longer() -> None:
    it = Pace()
    for _ in range(LOOKS):
        it.note(0.0)
    it.note(2 * PATIENCE_SECONDS)
    assert not it.quick
    for _ in range(2 * LOOKS):
        assert not it.quick
        it.note(0.0)
    assert it.quick


def test_quick_mini_batches_are_made_by_the_reader(clock: Clock) -> None:
    with gf.DataLoader(Stamp(pipeline()), num_workers=2, seed=0) as loader:
        first, second = here(loader), here(loader)
    assert not any(first[:LOOKS])
    assert first[-1]
    assert first == sorted(first)
    assert all(second)


def test_once_they_are_slow_threads_make_them_again(clock: Clock) -> None:
    with gf.DataLoader(Stamp(pipeline()), num_workers=2, seed=0) as loader:
        assert here(loader)[-1]
        clock.step = 2 * PATIENCE_SECONDS
        assert here(loader) == [True] + [False] * (COUNT - 1)


def test_the_same_bits_in_the_same_order(clock: Clock) -> None:
    with gf.DataLoader(pipeline(), num_workers=0, seed=0) as inline:
        expected = digests(inline)
    with gf.DataLoader(pipeline(), num_workers=2, seed=0) as loader:
        assert digests(loader) == expected


def test_a_failure_comes_in_its_place_and_names_where(clock: Clock) -> None:
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(COUNT, names="seeds"), batch_size=1)
    with gf.DataLoader(pipe.transform(fail_late), num_workers=2, seed=0) as loader:
        batches = iter(loader)
        assert [int(next(batches).seeds) for _ in range(COUNT - 2)] == list(range(COUNT - 2))
        with pytest.raises(ArithmeticError) as caught:
            next(batches)
    assert f"mini-batch {COUNT - 2} of epoch 0, in the main thread" in "".join(caught.value.__notes__)


def test_an_epoch_that_is_left_resumes_anywhere(clock: Clock) -> None:
    with gf.DataLoader(pipeline(), num_workers=2, seed=0) as loader:
        expected = digests(loader)
        loader.set_epoch(0)
        for count, _ in enumerate(loader, start=1):
            if count == COUNT - 5:
                break
        loader.load_state_dict(loader.state_dict())
        assert digests(loader) == expected[COUNT - 5 :]


def test_threads_that_the_user_brings_make_all_mini_batches(clock: Clock) -> None:
    with ThreadPoolExecutor(2) as threads, gf.DataLoader(Stamp(pipeline()), executor=threads, seed=0) as loader:
        assert not any(here(loader))


def test_an_epoch_whose_pace_changes_all_the_time_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = accumulate(cycle([0.0] * 40 + [PATIENCE_SECONDS] * 3))
    monkeypatch.setattr(pace, "perf_counter", lambda: next(clock))
    with gf.DataLoader(pipeline(), num_workers=0, seed=0) as inline:
        expected = digests(inline)
    with gf.DataLoader(pipeline(), num_workers=2, seed=0) as loader:
        for epoch in range(10):
            loader.set_epoch(0)
            assert digests(loader) == expected, epoch
