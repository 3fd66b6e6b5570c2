"""An interrupt at the terminal while workers start is the program's affair, not theirs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from graphfeed.loader.executors import process_executor

if __name__ == "__mp_main__":
    import slow

if __name__ == "__main__":
    if sys.argv[2] == "server":
        process_executor.PRELOAD.insert(0, "slow")
    process_executor.ProcessExecutor(1, timeout=60, start_method=sys.argv[1]).submit(abs, 1).result()
"""
SLOW = """
import time
print("what starts imports this", flush=True)
time.sleep(2)
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
@pytest.mark.parametrize(
    ("method", "slow"), [("forkserver", "server"), ("forkserver", "worker"), ("spawn", "worker")]
)
def test_workers_that_start_print_no_traceback(tmp_path: Path, method: str, slow: str) -> None:
    errors = interrupt(tmp_path, PROGRAM, method, slow)
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
def test_other_processes_of_the_fork_server_are_interrupted_as_ever(tmp_path: Path) -> None:
    errors = interrupt(tmp_path, OTHERS)
    assert "in work" in errors
