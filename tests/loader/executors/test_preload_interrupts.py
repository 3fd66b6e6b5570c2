"""An interrupt at the terminal while workers start is the program's affair, not theirs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import run

PROGRAM = """
import sys
from graphfeed.loader.executors import process_executor

if __name__ == "__mp_main__":
    import slow

if __name__ == "__main__":
    if sys.argv[1] == "forkserver":
        process_executor.PRELOAD.insert(0, "slow")
    process_executor.ProcessExecutor(1, timeout=60, start_method=sys.argv[1]).submit(abs, 1).result()
"""
SLOW = """
import time
print("what starts imports this", flush=True)
time.sleep(2)
"""
HELD = """
import signal
from graphfeed.loader.executors.process_executor import ProcessExecutor

def is_held():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

if __name__ == "__mp_main__":
    print("while a worker starts:", is_held(), flush=True)

if __name__ == "__main__":
    print("while it works:", ProcessExecutor(1, timeout=60).submit(is_held).result())
"""
OTHERS = """
import multiprocessing, time
from graphfeed.loader.executors.process_executor import make_context

def work():
    print("a process of one's own works", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    process = make_context("forkserver").Process(target=work)
    process.start()
    process.join()
    print(process.exitcode)
"""


def interrupt(tmp_path: Path, text: str, *arguments: str) -> str:
    """Run a program, interrupt it and its processes when it has printed a line, and return its errors."""
    path = tmp_path / "program.py"
    path.write_text(text)
    (tmp_path / "slow.py").write_text(SLOW)
    with subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{os.getcwd()}:{tmp_path}"},
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        os.killpg(program.pid, signal.SIGINT)
        return program.communicate(timeout=60)[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_that_start_print_no_traceback(tmp_path: Path, method: str) -> None:
    errors = interrupt(tmp_path, PROGRAM, method)
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
def test_other_processes_of_the_fork_server_are_interrupted_as_ever(tmp_path: Path) -> None:
    errors = interrupt(tmp_path, OTHERS)
    assert "in work" in errors


@pytest.mark.slow
def test_interrupts_are_held_back_until_a_worker_ignores_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HELD)
    done = run(str(tmp_path / "program.py"))
    assert done.stdout.splitlines() == ["while a worker starts: True", "while it works: False"]
