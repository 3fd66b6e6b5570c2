"""Programs that tests start, in processes that are forked from a warm one; see `tests/stand_ins/warm.py`.

For tests of imports, settings or the main module of an interpreter, `tests/stand_ins/scripts.py` starts a new one.
"""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.stand_ins.scripts import IMPORTS, REPOSITORY, SECONDS

START_SECONDS = 280.0  # the first time, kernels are compiled
COMPILES = "graphfeed is compiling its kernels"
NUMBERS = count()


class Ended(NamedTuple):
    """Exit code of a program, and its output without the lines about compiled kernels."""

    returncode: int | None
    stdout: str
    stderr: str


class Program:
    """A program in a process that the warm one forked."""

    def __init__(self, warm: "Warm", pid: int, output: Path, errors: Path) -> None:
        self.pid, self._warm, self._output, self._errors = pid, warm, output, errors
        self.returncode: int | None = None
        """Exit code of the process; None if it has not been waited for."""

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        give_up = time.monotonic() + seconds
        while self.returncode is None:
            if self._warm.hear(give_up - time.monotonic()) is None and time.monotonic() >= give_up:
                break
        return self.returncode is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self.wait(0):
            with suppress(ProcessLookupError):  # it is just ending
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def printed(self) -> str:
        """Return the output of the process so far."""
        return self._output.read_text()

    def wait_for(self, line: str, seconds: float = SECONDS) -> None:
        """Wait until the process has printed a line; fail if the process ends before."""
        give_up = time.monotonic() + seconds
        while f"{line}\n" not in self.printed():
            assert not self.wait(0.01) or line in self.printed(), self.end()
            assert time.monotonic() < give_up, f"{line!r} was not printed for {seconds} s, but {self.printed()!r}"

    def end(self, seconds: float = SECONDS) -> Ended:
        """Wait until the process ends; one that takes too long is killed, and the test fails."""
        if not self.wait(seconds):
            self.kill()
            raise AssertionError(f"the program took over {seconds} s; it printed {self.printed()!r}")
        lines = [file.read_text().splitlines(keepends=True) for file in (self._output, self._errors)]
        texts = ["".join(line for line in own if not line.startswith(COMPILES)) for own in lines]
        return Ended(self.returncode, *texts)


class Warm:
    """The process that forks programs; see `warm`."""

    def __init__(self) -> None:
        self._running: dict[int, Program] = {}  # without those that have ended, whose numbers are used again
        self._outputs = TemporaryDirectory(prefix="graphfeed-programs-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stand_ins.warm"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that poll() sees all unread data
        )
        while "ready" not in (self.hear(START_SECONDS) or ()):
            assert self._process.poll() is None, "the process that forks programs did not begin"

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message of the process within some seconds, and record ended programs."""
        stdout = self._process.stdout
        assert stdout is not None
        ready = select.poll()  # unlike select(), for any number of open files
        ready.register(stdout, select.POLLIN)
        if not ready.poll(1000 * max(0.0, seconds)):
            return None
        line = stdout.readline()
        if not line.startswith(b"{"):  # lines about compiled kernels
            return None
        said: dict[str, Any] = json.loads(line)
        if "ended" in said:
            self._running.pop(said["ended"]).returncode = said["code"]
        return said

    def start(self, program: str, arguments: tuple[str, ...], cwd: Path, together: bool, **settings: str) -> Program:
        """Start a process that runs a program."""
        output = Path(self._outputs.name) / f"{next(NUMBERS)}.txt"
        errors = output if together else output.with_suffix(".errors")
        for path in {output, errors}:
            path.touch()
        asked = {"program": program, "arguments": ["-c", *arguments], "cwd": str(cwd), "settings": settings}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**asked, "output": str(output), "errors": str(errors)}).encode() + b"\n")
        while "started" not in (said := self.hear(START_SECONDS) or {}):
            assert self._process.poll() is None, "the process that forks programs has ended"
        begun = self._running[said["started"]] = Program(self, said["started"], output, errors)
        return begun


@cache
def warm() -> Warm:
    """Return the process that forks programs; it ends with this one."""
    return Warm()


def start_program(
    program: str, *arguments: str, cwd: Path = REPOSITORY, together: bool = True, **settings: str
) -> Program:
    """Start a process that runs a program.

    Args:
        program: Its source code.
        arguments: The remaining values of `sys.argv`.
        cwd: Working directory.
        together: Whether stdout and stderr are joined.
        settings: Additional environment variables, which are not read on import.
    """
    return warm().start(program, arguments, cwd, together, **settings)


def start(body: str) -> Program:
    """Start a program that begins with some imports, with separate stderr."""
    return start_program(IMPORTS + textwrap.dedent(body), together=False)


def run_body(body: str, seconds: float = SECONDS) -> Ended:
    """Run a program that begins with some imports to its end, with separate stderr."""
    return start(body).end(seconds)


def run_module(name: str, *arguments: str, seconds: float = SECONDS, cwd: Path = REPOSITORY, **settings: str) -> Ended:
    """Run a module as a program to its end, as `python -m` does, with separate stderr."""
    program = f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    return start_program(program, *arguments, cwd=cwd, together=False, **settings).end(seconds)
