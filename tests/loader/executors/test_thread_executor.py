import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest

from graphfeed.loader.executors import thread_executor
from graphfeed.loader.executors.thread_executor import ThreadExecutor, describe_work, end_all
from tests.forked import held_elsewhere, in_child
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


def stuck(executor: ThreadExecutor, release: threading.Event) -> "Future[Any]":
    """Submit a call that waits, and return when a thread has begun it."""
    begun = threading.Event()

    def wait() -> str:
        begun.set()
        release.wait(60)
        return threading.current_thread().name

    future = executor.submit(wait)
    assert begun.wait(60)
    return future


def test_calls_give_results_and_errors() -> None:
    with ThreadExecutor(2) as executor:
        assert list(executor.map(abs, [-1, -2, -3])) == [1, 2, 3]
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()


def test_there_are_no_more_threads_than_asked_for() -> None:
    release = threading.Event()
    with ThreadExecutor(2, "mine") as executor:
        futures = [stuck(executor, release) for _ in range(2)]
        futures.append(executor.submit(lambda: threading.current_thread().name))
        assert not futures[2].done()
        release.set()
        assert {future.result(60) for future in futures} == {"mine_0", "mine_1"}


def test_shutting_down_does_what_was_submitted() -> None:
    release = threading.Event()
    executor = ThreadExecutor(1)
    futures = [stuck(executor, release), *(executor.submit(abs, 1) for _ in range(3))]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="was shut down; make another"):
        executor.submit(abs, 1)
    release.set()
    executor.shutdown()
    assert all(future.done() for future in futures)


def test_cancelling_drops_what_no_thread_has_begun() -> None:
    release = threading.Event()
    executor = ThreadExecutor(1)
    begun, other = stuck(executor, release), executor.submit(abs, 1)
    executor.shutdown(wait=False, cancel_futures=True)
    assert other.cancelled()
    release.set()
    assert begun.result(60) == "graphfeed_0"


def test_a_future_that_was_cancelled_is_not_called() -> None:
    release, called = threading.Event(), threading.Event()
    with ThreadExecutor(1) as executor:
        stuck(executor, release)
        assert executor.submit(called.set).cancel()
        release.set()
    assert not called.is_set()


def test_a_thread_that_does_not_come_back_is_left_behind_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 0.05)
    release = threading.Event()
    executor = ThreadExecutor(2)
    executor.submit(abs, 1).result(60)
    stuck(executor, release)
    with pytest.warns(RuntimeWarning, match=r"abandoned 1 thread still at work: graphfeed_\d is at threading.py:"):
        executor.shutdown(cancel_futures=True)
    end_all()  # would warn again
    release.set()


def test_the_end_of_the_program_ends_threads_and_leaves_behind_those_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 0.05)
    release = threading.Event()
    idle, busy = ThreadExecutor(1, "idle"), ThreadExecutor(1, "busy")
    idle.submit(abs, 1).result(60)
    stuck(busy, release)
    dropped = busy.submit(abs, 1)
    with pytest.warns(RuntimeWarning, match="abandoned 1 thread still at work: busy_0"):
        end_all()
    assert dropped.cancelled()
    release.set()


def close_within(executor: ThreadExecutor) -> None:
    """Shut an executor down as a generator does that is closed."""

    def generate() -> Generator[None, None, None]:
        try:
            yield
        finally:
            executor.shutdown(cancel_futures=True)

    running = generate()
    next(running)
    running.close()


@pytest.mark.parametrize("end", [lambda executor: executor.shutdown(cancel_futures=True), close_within])
def test_an_interrupt_leaves_threads_at_work_behind_sooner(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[ThreadExecutor], None]
) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 600.0)
    release = threading.Event()
    executor = ThreadExecutor(1)
    stuck(executor, release)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.warns(RuntimeWarning, match="abandoned 1 thread"):
            end(executor)
    release.set()


def test_a_program_that_an_interrupt_ends_waits_for_nothing_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 600.0)
    monkeypatch.setattr(sys, "last_value", KeyboardInterrupt(), raising=False)
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    release = threading.Event()
    stuck(ThreadExecutor(1), release)
    with pytest.warns(RuntimeWarning, match="abandoned 1 thread"):
        end_all()
    assert frozen == [True]
    release.set()


BUSY_IN_TORCH = """if True:
    import sys, torch, graphfeed as gf
    from graphfeed.loader.stages.prefetch import Prefetch
    values = torch.rand(1 << 20)
    def work(minibatch):
        while minibatch.seeds[0] > 0:
            values.aminmax()  # long calls of C++, which give up the interpreter's lock
        return minibatch
    pipe = gf.ItemSampler(gf.ItemSet(100, names="seeds"), 10).transform(work)
    batches = iter(Prefetch(pipe) if sys.argv[1] == "prefetch" else gf.DataLoader(pipe, num_workers=2))
    next(batches)
    if sys.argv[1] == "left":
        del batches
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "held", "prefetch"])
def test_a_program_ends_well_while_threads_are_in_torch(how: str) -> None:
    run = subprocess.run([sys.executable, "-c", BUSY_IN_TORCH, how], stderr=subprocess.PIPE, text=True, timeout=60)
    assert (run.returncode, run.stderr.count("terminate called")) == (0, 0)


def test_another_thread_takes_the_place_of_one_that_is_abandoned() -> None:
    release = threading.Event()
    with ThreadExecutor(2) as executor:
        first, second = stuck(executor, release), stuck(executor, release)
        (work,) = executor.abandon(first)
        assert work.startswith("graphfeed_0 is at threading.py:")
        assert executor.submit(lambda: threading.current_thread().name).result(60) == "graphfeed_2"
        later = executor.submit(abs, 1)
        later.result(60)
        assert len(executor.abandon(later)) == 1, "the one at work, since none works on the future"
        release.set()
        assert (first.result(60), second.result(60)) == ("graphfeed_0", "graphfeed_1")
        assert executor.submit(lambda: threading.current_thread().name).result(60) in ("graphfeed_2", "graphfeed_3")


def test_what_was_queued_before_a_thread_is_abandoned_is_done() -> None:
    release = threading.Event()
    with ThreadExecutor(1) as executor:
        first = stuck(executor, release)
        queued = executor.submit(lambda: threading.current_thread().name)
        executor.abandon(first)
        try:
            assert queued.result(60) == "graphfeed_1"
        finally:
            release.set()


def test_shutting_down_after_a_thread_is_abandoned_does_what_was_queued() -> None:
    release = threading.Event()
    executor = ThreadExecutor(1)
    first, queued = stuck(executor, release), executor.submit(abs, -1)
    executor.abandon(first)
    release.set()
    executor.shutdown()
    assert queued.done()


@pytest.mark.parametrize(("queued", "threads"), [(0, 1), (1, 2)])
def test_a_thread_abandoned_after_shutdown_is_replaced_only_for_calls_that_are_left(queued: int, threads: int) -> None:
    release = threading.Event()
    executor = ThreadExecutor(1)
    first, *left = stuck(executor, release), *(executor.submit(abs, -1) for _ in range(queued))
    executor.shutdown(wait=False)
    executor.abandon(first)
    assert [future.result(60) for future in left] == [1] * queued
    assert len(executor._threads) == threads
    release.set()
    executor.shutdown()


def test_a_result_that_was_taken_is_kept_by_nobody() -> None:
    with ThreadExecutor(1) as executor:
        gc.disable()
        try:
            made = weakref.ref(executor.submit(threading.Event).result(60))
            wait_until(lambda: made() is None, 10)
        finally:
            gc.enable()


def test_an_error_that_was_taken_is_kept_by_nobody() -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        raise Mine

    with ThreadExecutor(1) as executor:
        gc.disable()
        try:
            made = weakref.ref(executor.submit(fail).exception(60))
            wait_until(lambda: made() is None, 10)
        finally:
            gc.enable()


def test_a_forked_child_can_not_use_it() -> None:
    with ThreadExecutor(1) as executor:
        executor.submit(abs, 1).result(60)
        with held_elsewhere(executor._lock):
            assert in_child(executor.shutdown) == "None"
            assert "forked" in in_child(lambda: executor.submit(abs, 1))


def test_a_thread_that_has_ended_works_on_nothing() -> None:
    thread = threading.Thread(target=abs, args=(1,), name="short")
    thread.start()
    thread.join()
    assert describe_work(thread) == "short has ended"
