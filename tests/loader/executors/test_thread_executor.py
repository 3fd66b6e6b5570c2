"""What threads do beyond the contract of executors: hanging ones are left behind, and others take their place."""

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


def test_there_are_no_more_threads_than_asked_for() -> None:
    release = threading.Event()
    with ThreadExecutor(2, "mine") as executor:
        futures = [stuck(executor, release) for _ in range(2)]
        futures.append(executor.submit(lambda: threading.current_thread().name))
        assert not futures[2].done()
        release.set()
        assert {future.result(60) for future in futures} == {"mine_0", "mine_1"}


def test_threads_that_do_not_come_back_are_left_behind_with_one_warning_at_shutdown_and_at_the_end_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 0.05)
    release = threading.Event()
    executor, idle, busy = ThreadExecutor(2), ThreadExecutor(1, "idle"), ThreadExecutor(1, "busy")
    for one in (executor, idle):
        one.submit(abs, 1).result(60)
    stuck(executor, release)
    with pytest.warns(RuntimeWarning, match=r"abandoned 1 thread still at work: graphfeed_\d is at threading.py:"):
        executor.shutdown(cancel_futures=True)
    end_all()  # would warn again
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
@pytest.mark.parametrize(
    "how",
    ["held", pytest.param("left", marks=pytest.mark.thorough), pytest.param("prefetch", marks=pytest.mark.thorough)],
)
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


@pytest.mark.parametrize("queued", [0, 1])
@pytest.mark.parametrize("ended", [False, True])
def test_what_was_queued_before_a_thread_is_abandoned_is_done(ended: bool, queued: int) -> None:
    """Also after shutdown, when only calls that are left have a thread take its place."""
    release = threading.Event()
    executor = ThreadExecutor(1)
    first = stuck(executor, release)
    left = [executor.submit(lambda: threading.current_thread().name) for _ in range(queued)]
    if ended:
        executor.shutdown(wait=False)
    executor.abandon(first)
    assert [future.result(60) for future in left] == ["graphfeed_1"] * queued
    assert len(executor._threads) == (1 if ended and not queued else 2)
    release.set()
    executor.shutdown()


class Mine(Exception):
    """Can be referred to weakly, as built-in errors can't."""


def fail() -> None:
    raise Mine


@pytest.mark.parametrize(
    "take",
    [
        lambda executor: executor.submit(threading.Event).result(60),
        lambda executor: executor.submit(fail).exception(60),
    ],
    ids=["result", "error"],
)
def test_what_was_taken_is_kept_by_nobody(take: Callable[[ThreadExecutor], Any]) -> None:
    with ThreadExecutor(1) as executor:
        gc.disable()
        try:
            made = weakref.ref(take(executor))
            wait_until(lambda: made() is None, 10)
        finally:
            gc.enable()


def test_a_thread_that_has_ended_works_on_nothing() -> None:
    thread = threading.Thread(target=abs, args=(1,), name="short")
    thread.start()
    thread.join()
    assert describe_work(thread) == "short has ended"
