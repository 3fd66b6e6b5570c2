import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor, make_context
from tests.forked import in_child
from tests.programs import run_body
from tests.waiting import stop, wait_until

SECONDS = 60.0


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2, timeout=SECONDS) as executor:
        yield executor


def die(code: int) -> None:
    os.kill(os.getpid(), code)


def die_at_first(code: int, mark: Path) -> str:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), code)
    return "not dead"


def hold(begun: Path, end: Path) -> int:
    """Be at work until a file is there."""
    begun.write_text(str(os.getpid()))
    text_of(end)
    return os.getpid()


def fail(error: BaseException) -> None:
    error.add_note("a note")
    raise error


def text_of(path: Path) -> str:
    """Wait for a file that another process writes."""
    wait_until(lambda: path.exists() and path.read_text() != "", SECONDS)
    return path.read_text()


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def wait_for_end(pids: list[int], seconds: float = 30.0) -> list[int]:
    """Return who is still alive after a while."""
    with suppress(TimeoutError):
        wait_until(lambda: not any(map(is_alive, pids)), seconds)
    return [pid for pid in pids if is_alive(pid)]


def test_results_and_arguments_cross(executor: ProcessExecutor) -> None:
    values = {"half": torch.arange(3).to(torch.bfloat16), "empty": torch.empty(0, 3), "scalar": torch.tensor(True)}
    result: dict[str, Any] = executor.submit(dict, values, name="x").result(SECONDS)
    assert result.pop("name") == "x"
    assert result.keys() == values.keys()
    assert all(torch.equal(result[name], value) and result[name].dtype == value.dtype for name, value in values.items())


def test_map_keeps_the_order(executor: ProcessExecutor) -> None:
    assert list(executor.map(pow, range(20), [2] * 20)) == [number**2 for number in range(20)]


def test_results_may_be_kept_and_written_to(executor: ProcessExecutor) -> None:
    kept = [executor.submit(torch.full, (100_000,), number).result(SECONDS) for number in range(20)]
    kept[3] += 1
    assert [value.min().item() for value in kept] == [number + (number == 3) for number in range(20)]


def test_an_exception_keeps_its_type_notes_and_traceback(executor: ProcessExecutor) -> None:
    with pytest.raises(KeyError, match="what") as caught:
        executor.submit(fail, KeyError("what")).result(SECONDS)
    assert caught.value.__notes__ == ["a note"]
    assert "in fail" in str(caught.value.__cause__)


def test_a_call_that_exits_fails_and_leaves_the_worker(executor: ProcessExecutor) -> None:
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 3).result(SECONDS)
    assert executor.submit(pow, 2, 3).result(SECONDS) == 8


def test_a_result_that_does_not_pickle_fails(executor: ProcessExecutor) -> None:
    with pytest.raises((TypeError, RuntimeError), match="pickle"):
        executor.submit(threading.Lock).result(SECONDS)


class OnlyThere:
    """Unpickles in the process that made it, and raises in its parent."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return only_there, (self.error,)


def only_there(error: BaseException) -> str:
    if multiprocessing.parent_process() is None:
        raise error
    return "there"


@pytest.mark.parametrize("error", [LookupError("not here"), SystemExit("not here"), KeyboardInterrupt("not here")])
def test_a_result_that_does_not_unpickle_fails_alone(executor: ProcessExecutor, error: BaseException) -> None:
    future = executor.submit(OnlyThere, error)
    with pytest.raises(type(error), match="not here"):
        future.result(SECONDS)
    assert executor.submit(abs, -5).result(SECONDS) == 5


def test_an_argument_that_does_not_pickle_fails_at_once(executor: ProcessExecutor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(print, threading.Lock())


@pytest.mark.parametrize("code", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_call_whose_worker_is_killed_is_done_again(executor: ProcessExecutor, tmp_path: Path, code: int) -> None:
    assert executor.submit(die_at_first, code, tmp_path / "mark").result(SECONDS) == "done"


def test_a_call_that_kills_three_workers_fails_alone(executor: ProcessExecutor) -> None:
    futures: list[Future[Any]] = [executor.submit(die, signal.SIGKILL), *(executor.submit(abs, -n) for n in range(9))]
    with pytest.raises(WorkerLostError, match=r"3 workers died over this call.*killed by SIGKILL"):
        futures[0].result(SECONDS)
    assert [future.result(SECONDS) for future in futures[1:]] == list(range(9))


def test_a_worker_that_is_killed_while_it_has_nothing_to_do_is_replaced(executor: ProcessExecutor) -> None:
    executor.submit(abs, 1).result(SECONDS)
    for pid in executor.pids():
        os.kill(pid, signal.SIGKILL)
    assert executor.submit(abs, -2).result(SECONDS) == 2


def test_a_call_that_hangs_is_ended(executor: ProcessExecutor) -> None:
    executor.submit(abs, 1).result(SECONDS)  # starts what workers are forked from, which takes longer
    with ProcessExecutor(1, timeout=2.0) as impatient:
        impatient.submit(abs, 1).result(SECONDS)
        (pid,) = impatient.pids()
        future = impatient.submit(time.sleep, SECONDS)
        behind = impatient.submit(abs, -3)
        with pytest.raises(TimeoutError, match=rf"pid {pid}\) worked on one call for 2 s and was killed"):
            future.result(SECONDS)
        assert behind.result(SECONDS) == 3
        assert not wait_for_end([pid])


def test_the_start_of_a_worker_does_not_count() -> None:
    with ProcessExecutor(1, timeout=0.5, start_method="spawn") as executor:  # which imports torch
        assert executor.submit(abs, -1).result(SECONDS) == 1


def test_a_stopped_worker_is_ended_too(executor: ProcessExecutor, tmp_path: Path) -> None:
    executor.submit(abs, 1).result(SECONDS)
    with ProcessExecutor(1, timeout=2.0) as impatient:
        future = impatient.submit(hold, tmp_path / "mark", tmp_path / "end")
        stop(int(text_of(tmp_path / "mark")))
        (tmp_path / "end").write_text("now")
        with pytest.raises(TimeoutError, match="worked on one call"):
            future.result(SECONDS)


def test_a_slow_call_does_not_hold_up_the_others(executor: ProcessExecutor, tmp_path: Path) -> None:
    slow = executor.submit(hold, tmp_path / "mark", tmp_path / "end")
    text_of(tmp_path / "mark")
    done, _ = wait([executor.submit(abs, number) for number in range(20)], SECONDS)
    assert len(done) == 20
    assert not slow.done()
    (tmp_path / "end").write_text("now")
    slow.result(SECONDS)


def test_a_cancelled_call_is_not_done(tmp_path: Path) -> None:
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        executor.submit(hold, tmp_path / "begun", tmp_path / "end")
        text_of(tmp_path / "begun")
        cancelled = executor.submit(Path.touch, tmp_path / "mark")
        assert cancelled.cancel()
        (tmp_path / "end").write_text("now")
    assert not (tmp_path / "mark").exists()


def test_shutdown_finishes_what_was_submitted() -> None:
    executor = ProcessExecutor(2, timeout=SECONDS)
    futures = [executor.submit(abs, -number) for number in range(10)]
    executor.shutdown()
    assert [future.result(0) for future in futures] == list(range(10))
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)
    executor.shutdown(cancel_futures=True)


def test_shutdown_with_cancel_ends_running_calls(tmp_path: Path) -> None:
    executor = ProcessExecutor(1, timeout=SECONDS)
    running = executor.submit(hold, tmp_path / "mark", tmp_path / "never")
    waiting = executor.submit(abs, 1)
    pid = int(text_of(tmp_path / "mark"))
    executor.shutdown(cancel_futures=True)
    assert not wait_for_end([pid])
    assert waiting.cancelled()
    with pytest.raises(WorkerLostError, match="shut down before"):
        running.result(0)


def test_a_forgotten_executor_ends_when_its_calls_are_done(tmp_path: Path) -> None:
    executor = ProcessExecutor(1, timeout=SECONDS)
    future = executor.submit(hold, tmp_path / "mark", tmp_path / "end")
    del executor
    gc.collect()
    (tmp_path / "end").write_text("now")
    assert not wait_for_end([future.result(SECONDS)])


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_other_ways_to_start_give_the_same(start_method: str) -> None:
    with ProcessExecutor(1, start_method=start_method, timeout=SECONDS) as executor:
        assert executor.submit(torch.arange, 5).result(SECONDS).tolist() == [0, 1, 2, 3, 4]


def compute_in_another_process(value: int) -> int:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as inner:
        return inner.submit(abs, value).result(SECONDS)


def compute_in_another_worker(value: int) -> int:
    return ProcessExecutor(1, timeout=SECONDS).submit(abs, value).result(SECONDS)


@pytest.mark.parametrize("function", [compute_in_another_process, compute_in_another_worker])
def test_a_call_may_start_processes_of_its_own(executor: ProcessExecutor, function: Callable[[int], int]) -> None:
    assert executor.submit(function, -6).result(SECONDS) == 6


def inner_pids() -> list[int]:
    inner = ProcessExecutor(1, timeout=SECONDS)
    inner.submit(abs, 1).result(SECONDS)
    KEPT.append(inner)
    return inner.pids()


KEPT: list[ProcessExecutor] = []


def test_what_a_worker_started_ends_with_it() -> None:
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        pids = executor.submit(inner_pids).result(SECONDS)
        pids += executor.pids()
    assert len(pids) == 2
    assert not wait_for_end(pids)


def test_it_may_be_shut_down_by_its_own_thread(tmp_path: Path) -> None:
    other = ProcessExecutor(1, timeout=SECONDS)
    done: Future[str] = Future()

    def shut_down(future: "Future[Any]") -> None:
        other.shutdown(wait=True)
        done.set_result(threading.current_thread().name)

    other.submit(hold, tmp_path / "mark", tmp_path / "end").add_done_callback(shut_down)
    (tmp_path / "end").write_text("now")
    assert done.result(SECONDS) == "graphfeed-dispatcher"


def test_a_forked_child_can_not_use_it(executor: ProcessExecutor) -> None:
    executor.submit(abs, 1).result(SECONDS)
    assert "forked" in in_child(lambda: executor.submit(abs, 1))
    assert executor.submit(abs, -4).result(SECONDS) == 4


PROGRAM = """
import os, signal, sys, time
from graphfeed.loader.executors.process_executor import ProcessExecutor

def rest():
    time.sleep(60)

if __name__ == "__main__":
    executor = ProcessExecutor(2, timeout=60)
    futures = [executor.submit(abs, 1), executor.submit(rest)]
    futures[0].result()
    print(*executor.pids(), flush=True)
    {end}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    ["sys.exit(0)", "raise ValueError", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"],
    ids=["exit", "exception", "no clean-up", "killed", "interrupted"],
)
def test_workers_end_with_the_program(tmp_path: Path, end: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{end}", end))
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        if end.startswith("time"):
            os.killpg(program.pid, signal.SIGINT)
        _, printed = program.communicate(timeout=SECONDS)
    assert len(pids) == 2
    assert not wait_for_end(pids)
    assert "resource_tracker" not in printed
    assert "graphfeed-" not in printed


def test_a_daemonic_process_such_as_a_worker_of_torchs_data_loader_can_not_have_one() -> None:
    ended = run_body(
        """
        import multiprocessing
        from graphfeed.loader.executors.process_executor import ProcessExecutor

        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                pool.apply(ProcessExecutor, (1,))
            except RuntimeError as error:
                print(error)
        """
    )
    assert "can't be started in a daemonic process" in ended.stdout
    assert "worker='thread'" in ended.stdout


def test_it_takes_the_cores_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(77)))
    with ProcessExecutor() as executor:
        assert executor._dispatcher.max_workers == 77


def test_the_fork_server_starts_early_but_behind_what_unblocks_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(forkserver, "ensure_running", lambda: started.append("server"))
    monkeypatch.setattr(resource_tracker, "ensure_running", lambda: started.append("tracker"))
    assert make_context("spawn").get_start_method() == "spawn"
    assert make_context("forkserver").get_start_method() == "forkserver"
    assert started == ["tracker", "server"]


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="max_workers must be 1 or more, but is 0"):
        ProcessExecutor(0)
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds, but is 0"):
        ProcessExecutor(1, timeout=0)
    with pytest.raises(ValueError, match=r"start_method must be one of .*'thread'"):
        make_context("thread")
