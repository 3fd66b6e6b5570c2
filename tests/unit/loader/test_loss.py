"""Worker processes that are killed, hang or don't start: others repeat their calls, and nothing is left behind."""

import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from graphfeed.loader import ProcessExecutor, WorkerLostError
from tests.stand_ins.at_work import SECONDS, die, hold, text_of, wait_for_end
from tests.stand_ins.forked import in_child
from tests.stand_ins.programs import start
from tests.stand_ins.scripts import run
from tests.stand_ins.waiting import stop


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


def test_where_no_process_can_start_the_call_fails_and_later_ones_are_done() -> None:
    def start() -> list[Any]:
        with ProcessExecutor(1, timeout=SECONDS, start_method="fork") as executor:
            with few_files():
                failed = executor.submit(abs, 1).exception(SECONDS)
            return [type(failed), executor.submit(abs, -2).result(SECONDS)]

    assert in_child(start) == "[<class 'OSError'>, 2]"


@contextmanager
def few_files() -> Iterator[None]:
    """Keep this process from opening more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


STARTS = """
import os, signal, sys
from pathlib import Path
from graphfeed.loader import ProcessExecutor

if __name__ == "__mp_main__":
    starts = Path(sys.argv[1])
    with starts.open("a") as file:
        file.write(".")
    if sys.argv[2] == "never" or len(starts.read_text()) % 3:
        sys.exit(5)

if __name__ == "__main__":
    with ProcessExecutor(1, timeout=60) as executor:
        for number in range(2):
            assert executor.submit(abs, -number).result(60) == number
            os.kill(executor.pids()[0], signal.SIGKILL)
"""


@pytest.mark.slow
def test_three_failed_starts_in_a_row_fail_the_calls_and_a_good_one_ends_the_row(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STARTS)
    for when, code in (("each third", 0), ("never", 1)):
        done = run(str(tmp_path / "program.py"), str(tmp_path / when), when)
        assert done.returncode == code, done.stderr
    assert len((tmp_path / "each third").read_text()) >= 6
    assert re.search(r"WorkerLostError: 3 workers died in a row while they started.*exited with code", done.stderr)


def test_what_finds_no_memory_to_travel_in_fails_alone() -> None:
    def send() -> list[Any]:
        with ProcessExecutor(1, timeout=SECONDS) as executor:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # also of files in memory
            failed = executor.submit(len, bytes(1 << 20)).exception(SECONDS)
            return [type(failed), executor.submit(abs, -1).result(SECONDS)]

    assert in_child(send) == "[<class 'OSError'>, 1]"


WORKING = """
from pathlib import Path
from graphfeed.loader import ProcessExecutor
from tests.stand_ins.at_work import hold

with ProcessExecutor(1, timeout=1.0, start_method="fork") as executor:
    print(executor.submit(hold, Path({begun!r}), Path({end!r})).result() > 0)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_programs")
def test_no_worker_is_blamed_for_a_time_in_which_the_program_was_stopped(tmp_path: Path) -> None:
    program = start(WORKING.format(begun=str(tmp_path / "begun"), end=str(tmp_path / "end")))
    text_of(tmp_path / "begun")
    stop(program.pid)
    time.sleep(1.5)
    program.send_signal(signal.SIGCONT)
    (tmp_path / "end").write_text("now")
    assert program.end().stdout == "True\n"


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
