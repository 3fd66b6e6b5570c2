import multiprocessing
import os
import selectors
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from graphfeed.loader.executors.process_executor import make_context
from graphfeed.loader.executors.worker_main import Reply
from graphfeed.loader.executors.worker_process import WorkerProcess
from graphfeed.loader.transport.pickling import dump
from graphfeed.ops.memory import buffers
from tests.waiting import stop

SECONDS = 60.0


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(make_context("forkserver"))
    yield worker
    worker.close()
    worker.join(1.0)


def replies(worker: WorkerProcess) -> list[Reply | BaseException]:
    with selectors.DefaultSelector() as selector:
        selector.register(worker.inbox, selectors.EVENT_READ)
        assert selector.select(SECONDS)
    return list(worker.replies())


def test_it_says_that_it_is_ready_and_answers(worker: WorkerProcess) -> None:
    assert replies(worker) == [Reply(None)]
    worker.send(4, dump(partial(pow, 2, 5)))
    assert replies(worker) == [Reply(4, 32)]
    assert not worker.gone


def test_a_killed_one_is_gone_and_says_by_what(worker: WorkerProcess) -> None:
    replies(worker)
    os.kill(worker.pid, signal.SIGKILL)
    assert replies(worker) == []
    worker.join(SECONDS)
    assert worker.gone
    assert worker.was_killed()
    assert worker.describe_exit() == "was killed by SIGKILL"
    worker.send(1, b"")


def test_a_signal_without_a_name_is_told_by_its_number(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGRTMIN + 3)
    worker.process.join(SECONDS)
    assert worker.describe_exit() == f"was killed by signal {signal.SIGRTMIN + 3}"


def test_one_whose_end_somebody_else_was_told_has_an_unknown_fate() -> None:
    worker = WorkerProcess(make_context("spawn"))
    os.kill(worker.pid, signal.SIGKILL)
    os.waitpid(worker.pid, 0)
    worker.close()
    worker.join(0.0)
    assert not worker.was_killed()
    assert worker.describe_exit() == "exited with code None"


def test_one_that_is_not_needed_leaves_by_itself(worker: WorkerProcess) -> None:
    replies(worker)
    worker.close()
    worker.process.join(SECONDS)
    assert worker.describe_exit() == "exited with code 0"


def test_one_that_does_not_leave_is_killed(worker: WorkerProcess) -> None:
    replies(worker)
    stop(worker.pid)
    worker.close()
    worker.join(0.0)
    assert worker.describe_exit() == "was killed by SIGKILL"


def fork_a_child() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_one_is_noticed_though_its_own_child_lives_on() -> None:
    worker = WorkerProcess(multiprocessing.get_context("fork"))
    replies(worker)
    worker.send(1, dump(partial(fork_a_child)))
    (reply,) = replies(worker)
    assert isinstance(reply, Reply)
    try:
        os.kill(worker.pid, signal.SIGKILL)
        with selectors.DefaultSelector() as selector:
            selector.register(worker.sentinel, selectors.EVENT_READ)
            assert selector.select(SECONDS)
        assert worker.describe_exit() == "was killed by SIGKILL"
    finally:
        os.kill(reply.result, signal.SIGKILL)
        worker.close()
        worker.join(0.0)


KEPT: list[torch.Tensor] = []


def make(number: int, *, keep: bool) -> list[torch.Tensor]:
    """Return what an op makes, and a part of it; change what was kept before."""
    for tensor in KEPT:
        tensor += 1000
    tensor = buffers.empty(100_000, torch.int64).fill_(number)
    if keep:
        KEPT.append(tensor)
    return [tensor, tensor[10:20]]


@pytest.mark.parametrize("keep", [False, True])
def test_results_stay_as_they_were_sent(worker: WorkerProcess, *, keep: bool) -> None:
    """Also those that the worker keeps and changes, and when it is dead."""
    assert replies(worker) == [Reply(None)]
    results = []
    for number in range(30):
        worker.send(number, dump(partial(make, number, keep=keep)))
        (reply,) = replies(worker)
        assert isinstance(reply, Reply)
        results.append(reply.result)
    worker.process.kill()
    worker.process.join()
    for number, (whole, part) in enumerate(results):
        part += 5
        assert torch.equal(whole, torch.full((100_000,), number))
        assert part.tolist() == [number + 5] * 10
