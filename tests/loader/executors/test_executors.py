"""What worker threads and processes keep of the standard library's interface, and any engine with it for a loader."""

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from tests import pipelines
from tests.digests import digest, digests
from tests.forked import held_elsewhere, in_child
from tests.loader.executors.at_work import SECONDS, fail, hold, text_of

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

Start = Callable[[int], Any]
OWN: dict[str, Start] = {"threads": ThreadExecutor, "processes": partial(ProcessExecutor, timeout=SECONDS)}


@pytest.fixture(params=OWN)
def start(request: pytest.FixtureRequest) -> Start:
    """Return what makes an executor of a kind, with so many workers."""
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


def test_a_forked_child_can_not_use_it_and_waits_for_no_lock_of_its_parent(start: Start) -> None:
    with start(1) as executor:
        assert executor.submit(abs, -1).result(SECONDS) == 1
        lock = executor._lock if isinstance(executor, ThreadExecutor) else executor._dispatcher.lock
        with held_elsewhere(lock):
            assert in_child(partial(executor.shutdown, wait=False)) == "None"
            assert "forked" in in_child(lambda: executor.submit(abs, 1))
        assert executor.submit(abs, -4).result(SECONDS) == 4


class Engine(Executor):
    """Passes calls on to a pool of processes, and keeps them."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool
        self.calls: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append((fn, *args))
        return self.pool.submit(fn, *args, **kwargs)


def test_no_two_calls_are_equal_as_engines_may_take_equal_calls_for_one() -> None:
    """Dask cancels what has equal arguments together: an epoch that is left would end the same one, begun anew."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        engine = Engine(pool)
        with gf.DataLoader(pipelines.shuffled(), 2, executor=engine, seed=3) as loader:
            for _ in range(2):
                loader.set_epoch(0)
                digests(loader)
    assert len(engine.calls) == len(set(engine.calls)) == 2 * len(loader)
