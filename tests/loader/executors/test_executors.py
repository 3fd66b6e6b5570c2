"""What worker threads and processes keep of the standard library's interface, and any engine with it for a loader."""

import multiprocessing
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from tests import pipelines
from tests.clusters import dask_cluster, ray_cluster
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


def pool_of_threads() -> Executor:
    return ThreadPoolExecutor(2)


def pool_of_processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))


ENGINES: list[Any] = [
    *(pytest.param(partial(make, 2), id=name) for name, make in OWN.items()),
    pool_of_threads,
    pool_of_processes,
    pytest.param(dask_cluster, marks=[pytest.mark.slow, pytest.mark.thorough]),
    pytest.param(ray_cluster, marks=[pytest.mark.slow, pytest.mark.thorough]),
]
"""What may run a loader's workers: two of our own, pools of the standard library, clusters of others."""


def fail_at_five(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    assert minibatch.key is not None
    if minibatch.key.index == 5:
        raise ArithmeticError("five")
    return minibatch


def passed_on(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return minibatch


def one_after_another() -> Iterator[gf.MiniBatch]:
    return (gf.MiniBatch(seeds=torch.tensor([node])) for node in range(4))


@pytest.mark.parametrize("engine", ENGINES)
def test_with_any_engine_a_loader_keeps_order_failures_and_what_it_was_given(
    engine: Callable[[], AbstractContextManager[Executor]],
) -> None:
    pipe = pipelines.shuffled()
    expected = [digests(pipe.with_seed(3, epoch)) for epoch in range(2)]
    with engine() as executor:
        with gf.DataLoader(pipe, 2, executor=executor, seed=3) as loader:
            next(iter(loader))  # an epoch that is left harms none that follows
            loader.set_epoch(0)
            assert [digests(loader) for _ in range(2)] == expected
        with gf.DataLoader(pipe.transform(fail_at_five), 2, executor=executor, seed=3) as loader:
            minibatches = iter(loader)
            assert [digest(next(minibatches)) for _ in range(5)] == expected[0][:5]
            with pytest.raises(ArithmeticError, match="five") as caught:
                next(minibatches)
            assert "MiniBatchTransformer, stage 4, mini-batch 5 of epoch 0" in caught.value.__notes__[0]
        # A source without an index stays here, even if it can't be pickled, and its mini-batches are sent.
        given: Any = one_after_another()
        with gf.DataLoader(gf.MiniBatchTransformer(given, passed_on), 2, executor=executor) as loader:
            assert [minibatch.seeds.tolist() for minibatch in loader] == [[0], [1], [2], [3]]
        assert executor.submit(abs, -3).result(SECONDS) == 3, "it is left running"
