"""Worker processes that are killed, hang or don't start: others repeat their calls, and nothing is left behind."""

import multiprocessing
import os
import selectors
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.context import BaseContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed.loader.executors import process_executor
from graphfeed.loader.executors.dispatcher import ATTEMPTS, Dispatcher, WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor, make_context
from graphfeed.loader.executors.worker_main import run_worker
from graphfeed.loader.executors.worker_process import WorkerProcess
from tests.loader.executors.at_work import SECONDS, die, hold, text_of, wait_for_end
from tests.waiting import stop


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2, timeout=SECONDS) as executor:
        yield executor


def die_at_first(signal: int, mark: Path) -> str:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return "done"
    die(signal)
    return "not dead"


def test_a_call_whose_worker_is_killed_is_done_again(executor: ProcessExecutor, tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        assert executor.submit(die_at_first, number, tmp_path / str(number)).result(SECONDS) == "done", number


def test_a_call_that_kills_three_workers_fails_alone(executor: ProcessExecutor) -> None:
    numbers = {signal.SIGKILL: "killed by SIGKILL", signal.SIGRTMIN + 3: f"killed by signal {signal.SIGRTMIN + 3}"}
    for number, words in numbers.items():
        fatal: Future[Any] = executor.submit(die, number)
        others = [executor.submit(abs, -n) for n in range(9)]
        with pytest.raises(WorkerLostError, match=rf"3 workers died in a row during this call.*{words}"):
            fatal.result(SECONDS)
        assert [future.result(SECONDS) for future in others] == list(range(9))


def test_a_worker_that_is_killed_while_it_has_nothing_to_do_is_replaced(executor: ProcessExecutor) -> None:
    executor.submit(abs, 1).result(SECONDS)
    for pid in executor.pids():
        os.kill(pid, signal.SIGKILL)
    assert executor.submit(abs, -2).result(SECONDS) == 2


def test_a_call_that_hangs_is_ended_and_so_is_a_worker_that_was_stopped(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    executor.submit(abs, 1).result(SECONDS)  # starts the fork server, which takes longer
    with ProcessExecutor(1, timeout=1.0) as impatient:
        impatient.submit(abs, 1).result(SECONDS)
        (pid,) = impatient.pids()
        hanging, behind = impatient.submit(time.sleep, SECONDS), impatient.submit(abs, -3)
        with pytest.raises(TimeoutError, match=rf"pid {pid}\) worked on one call for 1 s and was killed"):
            hanging.result(SECONDS)
        assert behind.result(SECONDS) == 3
        assert not wait_for_end([pid])
        stopped = impatient.submit(hold, tmp_path / "mark", tmp_path / "end")
        stop(int(text_of(tmp_path / "mark")))
        (tmp_path / "end").write_text("now")
        with pytest.raises(TimeoutError, match="worked on one call"):
            stopped.result(SECONDS)


@pytest.mark.slow
def test_the_start_of_a_worker_does_not_count() -> None:
    with ProcessExecutor(1, timeout=0.5, start_method="spawn") as executor:  # which imports torch
        assert executor.submit(abs, -1).result(SECONDS) == 1


def test_shutdown_with_cancel_ends_running_calls(tmp_path: Path) -> None:
    executor = ProcessExecutor(1, timeout=SECONDS)
    running = executor.submit(hold, tmp_path / "mark", tmp_path / "never")
    pid = int(text_of(tmp_path / "mark"))
    executor.shutdown(cancel_futures=True)
    assert not wait_for_end([pid])
    with pytest.raises(WorkerLostError, match="shut down before"):
        running.result(0)


class FewProcesses(BaseContext):
    """A system on which only a limited number of processes start."""

    def __init__(self, count: int) -> None:
        self.makers = [make_context("forkserver").Process] * count  # type: ignore[attr-defined]

    def get_start_method(self, allow_none: bool = False) -> str:
        return "forkserver"

    def Process(self, **options: Any) -> Any:
        if not self.makers:
            raise BlockingIOError("too many processes")
        return self.makers.pop()(**options)


def test_where_fewer_processes_start_they_do_all_tasks_and_without_any_the_tasks_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_executor, "make_context", lambda _: FewProcesses(1))
    with ProcessExecutor(2, timeout=SECONDS) as executor:
        assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
    monkeypatch.setattr(process_executor, "make_context", lambda _: FewProcesses(0))
    with ProcessExecutor(1, timeout=SECONDS) as executor, pytest.raises(BlockingIOError, match="too many processes"):
        executor.submit(abs, 1).result(SECONDS)


def leave(*_: Any) -> None:
    raise SystemExit(5)


def test_workers_that_fail_to_start_again_and_again_fail_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.loader.executors.worker_process.run_worker", leave)
    words = f"{ATTEMPTS} workers died in a row while they started.*exited with code 5"
    with ProcessExecutor(1, timeout=SECONDS) as executor, pytest.raises(WorkerLostError, match=words):
        executor.submit(abs, 1).result(SECONDS)


def start_every_third_time(starts: Path, *mailboxes: Any) -> None:
    with starts.open("a") as file:
        file.write(".")
    if len(starts.read_text()) % ATTEMPTS:
        leave()
    run_worker(*mailboxes)


def test_a_start_ends_a_row_of_failed_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = partial(start_every_third_time, tmp_path / "starts")
    monkeypatch.setattr("graphfeed.loader.executors.worker_process.run_worker", worker)
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        for number in range(2):
            assert executor.submit(abs, -number).result(SECONDS) == number
            (pid,) = executor.pids()
            os.kill(pid, signal.SIGKILL)
    assert len((tmp_path / "starts").read_text()) >= 2 * ATTEMPTS


def refuse(*_: Any) -> Any:
    raise OSError("too many of them are open")


@pytest.mark.parametrize(
    ("refused", "call"),
    [("MemoryFile.create", (len, bytes(1 << 20))), ("map_shared", (torch.zeros, 1 << 17))],
    ids=["argument", "result"],
)
def test_what_finds_no_memory_to_travel_in_fails_alone(
    monkeypatch: pytest.MonkeyPatch, refused: str, call: tuple[Any, Any]
) -> None:
    monkeypatch.setattr(f"graphfeed.loader.transport.arena.{refused}", refuse)
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        with pytest.raises(OSError, match="too many of them are open"):
            executor.submit(call[0], call[1]).result(SECONDS)
        assert executor.submit(abs, -1).result(SECONDS) == 1


class Busy:
    """A worker that has been running its task since the start of a clock."""

    ready = True
    since = 0.0


@pytest.mark.parametrize("stopped", [0.0, 3600.0])
def test_no_worker_is_blamed_for_a_time_in_which_this_process_was_stopped(
    stopped: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def select(seconds: float) -> list[Any]:
        clock[0] += seconds + stopped
        return []

    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    worker: Any = Busy()
    monkeypatch.setattr(dispatcher, "workers", [worker])
    monkeypatch.setattr(dispatcher, "running", {worker: None})
    monkeypatch.setattr("graphfeed.loader.executors.dispatcher.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(dispatcher.selector, "select", select)
    dispatcher.wait()
    assert clock[0] - worker.since == pytest.approx(SECONDS / 10)
    monkeypatch.undo()
    dispatcher.finish(cancel=True)
    dispatcher.run()


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(make_context("forkserver"))
    with selectors.DefaultSelector() as selector:
        selector.register(worker.inbox, selectors.EVENT_READ)
        assert selector.select(SECONDS)
    yield worker
    worker.close()
    worker.join(1.0)


def test_one_that_is_not_needed_leaves_by_itself_and_is_killed_if_it_does_not(worker: WorkerProcess) -> None:
    worker.close()
    worker.process.join(SECONDS)
    assert worker.describe_exit() == "exited with code 0"
    other = WorkerProcess(make_context("forkserver"))
    stop(other.pid)
    other.close()
    other.join(0.0)
    assert other.describe_exit() == "was killed by SIGKILL"


def test_one_whose_end_somebody_else_was_told_has_an_unknown_fate() -> None:
    worker = WorkerProcess(multiprocessing.get_context("spawn"))
    os.kill(worker.pid, signal.SIGKILL)
    os.waitpid(worker.pid, 0)
    worker.close()
    worker.join(0.0)
    assert worker.describe_exit() == "exited with code None"


def fork_and_die(child_id: Path) -> None:
    """Leave a child process that inherits the worker's descriptors."""
    child = os.fork()
    if child == 0:
        time.sleep(SECONDS)
        os._exit(0)
    child_id.write_text(f"{child_id.read_text() if child_id.exists() else ''} {child}")
    die(signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_one_is_noticed_though_its_own_child_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "children"
    with ProcessExecutor(1, timeout=SECONDS / 2, start_method="fork") as executor:
        try:
            with pytest.raises(WorkerLostError, match="killed by SIGKILL"):
                executor.submit(fork_and_die, path).result(SECONDS / 2)
        finally:
            for child in path.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
