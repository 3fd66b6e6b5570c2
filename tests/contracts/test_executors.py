"""Workers with the standard library's interface, other executors with it, and threads that hang."""

import gc
import multiprocessing
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import ProcessExecutor
from graphfeed.loader.executors import ThreadExecutor
from graphfeed.loader.executors.thread_executor import end_threads
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.stand_ins.at_work import SECONDS, fail, hold, text_of
from tests.stand_ins.forked import in_child
from tests.stand_ins.waiting import wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


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


@limits(join_seconds=0.05)
def test_threads_that_do_not_come_back_are_left_behind_with_one_warning_at_shutdown_and_at_the_end_of_the_program() -> (
    None
):
    release = threading.Event()
    executor, idle, busy = ThreadExecutor(2), ThreadExecutor(1, "idle"), ThreadExecutor(1, "busy")
    for one in (executor, idle):
        one.submit(abs, 1).result(60)
    stuck(executor, release)
    with pytest.warns(RuntimeWarning, match=r"abandoned 1 thread still at work: graphfeed_\d is at threading.py:"):
        executor.shutdown(cancel_futures=True)
    end_threads()  # would warn again
    stuck(busy, release)
    dropped = busy.submit(abs, 1)
    with pytest.warns(RuntimeWarning, match="abandoned 1 thread still at work: busy_0"):
        end_threads()
    assert dropped.cancelled()
    release.set()


@limits(join_seconds=600.0)
def test_an_interrupt_leaves_threads_at_work_behind_sooner() -> None:
    release = threading.Event()
    executor = ThreadExecutor(1)
    stuck(executor, release)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.warns(RuntimeWarning, match="abandoned 1 thread"):
            executor.shutdown(cancel_futures=True)
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


def test_what_was_queued_before_a_thread_is_abandoned_is_done_also_after_shutdown() -> None:
    for ended in (False, True):
        release = threading.Event()
        executor = ThreadExecutor(1)
        first = stuck(executor, release)
        left = executor.submit(lambda: threading.current_thread().name)
        if ended:
            executor.shutdown(wait=False)
        executor.abandon(first)
        assert left.result(60) == "graphfeed_1"
        release.set()
        executor.shutdown()


class Mine(Exception):
    """Supports weak references, unlike built-in exceptions."""


def fails() -> None:
    raise Mine


def test_results_and_errors_that_were_taken_are_kept_by_nobody() -> None:
    with ThreadExecutor(1) as executor:
        gc.disable()
        try:
            result = weakref.ref(executor.submit(threading.Event).result(60))
            error = weakref.ref(executor.submit(fails).exception(60))
            wait_until(lambda: result() is None and error() is None, 10)
        finally:
            gc.enable()


Start = Callable[[int], Any]
OWN: dict[str, Start] = {"threads": ThreadExecutor, "processes": partial(ProcessExecutor, timeout=SECONDS)}


@pytest.fixture(params=OWN)
def start(request: pytest.FixtureRequest) -> Start:
    """Return a factory for executors of a kind, from a number of workers."""
    return OWN[request.param]


def test_calls_give_results_and_map_keeps_their_order(start: Start) -> None:
    values = {"half": torch.arange(3).to(torch.bfloat16), "empty": torch.empty(0, 3), "scalar": torch.tensor(True)}
    with start(2) as executor:
        result = executor.submit(dict, values, name="x").result(SECONDS)
        assert list(executor.map(pow, range(20), [2] * 20)) == [number**2 for number in range(20)]
    assert digest(result) == digest({**values, "name": "x"})


def test_an_error_keeps_its_type_notes_and_traceback(start: Start) -> None:
    with start(1) as executor, pytest.raises(KeyError, match="what") as caught:
        executor.submit(fail, KeyError("what")).result(SECONDS)
    assert caught.value.__notes__ == ["a note"]
    assert "in fail\n" in "".join(traceback.format_exception(caught.value))


def test_a_call_that_exits_fails_and_leaves_the_worker(start: Start) -> None:
    with start(1) as executor:
        with pytest.raises(SystemExit):
            executor.submit(sys.exit, 3).result(SECONDS)
        assert executor.submit(pow, 2, 3).result(SECONDS) == 8


def test_a_slow_call_does_not_hold_up_the_others(start: Start, tmp_path: Path) -> None:
    with start(2) as executor:
        slow = executor.submit(hold, tmp_path / "begun", tmp_path / "end")
        text_of(tmp_path / "begun")
        done, _ = wait([executor.submit(abs, number) for number in range(20)], SECONDS)
        assert len(done) == 20
        assert not slow.done()
        (tmp_path / "end").write_text("now")


def test_a_call_that_was_cancelled_is_not_done(start: Start, tmp_path: Path) -> None:
    with start(1) as executor:
        executor.submit(hold, tmp_path / "begun", tmp_path / "end")
        text_of(tmp_path / "begun")
        cancelled, last = executor.submit(Path.touch, tmp_path / "mark"), executor.submit(abs, -2)
        assert cancelled.cancel()
        (tmp_path / "end").write_text("now")
        assert last.result(SECONDS) == 2
    assert not (tmp_path / "mark").exists()


def test_shutting_down_does_what_was_submitted_and_takes_no_more(start: Start, tmp_path: Path) -> None:
    executor = start(1)
    futures = [executor.submit(hold, tmp_path / "begun", tmp_path / "end"), executor.submit(abs, -1)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)
    (tmp_path / "end").write_text("now")
    executor.shutdown()
    assert [future.done() for future in futures] == [True, True]
    assert futures[1].result(0) == 1
    executor.shutdown(cancel_futures=True)


def test_shutting_down_drops_what_nobody_has_begun_if_asked_to(start: Start, tmp_path: Path) -> None:
    executor = start(1)
    executor.submit(hold, tmp_path / "begun", tmp_path / "end")
    text_of(tmp_path / "begun")
    waiting = executor.submit(abs, 1)
    executor.shutdown(wait=False, cancel_futures=True)
    assert wait([waiting], SECONDS).done
    assert waiting.cancelled()
    (tmp_path / "end").write_text("now")
    executor.shutdown()


def test_a_forked_child_can_not_use_it_and_may_shut_it_down(start: Start) -> None:
    with start(1) as executor:
        assert executor.submit(abs, -1).result(SECONDS) == 1
        assert in_child(partial(executor.shutdown, wait=False)) == "None"
        assert "forked" in in_child(lambda: executor.submit(abs, 1))
        assert executor.submit(abs, -4).result(SECONDS) == 4


class Engine(Executor):
    """Passes calls to a process pool, and keeps them."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool
        self.calls: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append((fn, *args))
        return self.pool.submit(fn, *args, **kwargs)


def test_no_two_calls_are_equal_as_engines_may_take_equal_calls_for_one() -> None:
    """Dask cancels equal calls together: leaving an epoch would cancel a second run of the same epoch."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        engine = Engine(pool)
        with gf.DataLoader(pipelines.shuffled(), 2, executor=engine, seed=3) as loader:
            for _ in range(2):
                loader.set_epoch(0)
                digests(loader)
    assert len(engine.calls) == len(set(engine.calls)) == 2 * len(loader)
