"""Starts several ranks on this machine, as processes that share a process group over gloo."""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed

from tests.scripts import IMPORTS, REPOSITORY

START_SECONDS = 60
END_SECONDS = 280  # the first time, kernels are compiled
NUMBERS = count()


class Program:
    """A program in a process that the warm one forked."""

    def __init__(self, warm: "Warm", pid: int, output: Path) -> None:
        self.pid, self._warm, self._output = pid, warm, output

    @property
    def returncode(self) -> int | None:
        """How the process ended, as far as somebody has waited for it."""
        return self._warm.codes.get(self.pid)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        give_up = time.monotonic() + seconds
        while self.returncode is None:
            if self._warm.hear(give_up - time.monotonic()) is None and time.monotonic() >= give_up:
                break
        return self.returncode is not None

    def send_signal(self, number: signal.Signals) -> None:
        if not self.wait(0):
            with suppress(ProcessLookupError):  # it ends at this moment
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def printed(self) -> str:
        return self._output.read_text()


class Warm:
    """The process that forks those of programs; see `warm`."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self._outputs = TemporaryDirectory(prefix="graphfeed-ranks-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.warm"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that select() sees all that was not read
        )
        while "ready" not in (self.hear(END_SECONDS) or ()):
            assert self._process.poll() is None, "the process that forks ranks did not begin"

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Return the next thing that the process says within some seconds, and note what ended."""
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], max(0.0, seconds))[0]:
            return None
        line = stdout.readline()
        if not line.startswith(b"{"):  # that it compiles kernels
            return None
        said: dict[str, Any] = json.loads(line)
        if "ended" in said:
            self.codes[said["ended"]] = said["code"]
        return said

    def start(self, text: str) -> Program:
        """Start a process that runs a program."""
        output = Path(self._outputs.name) / f"{next(NUMBERS)}.txt"
        output.touch()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([text, str(output)]).encode() + b"\n")
        while "started" not in (said := self.hear(END_SECONDS) or {}):
            assert self._process.poll() is None, "the process that forks ranks has ended"
        return Program(self, said["started"], output)


@cache
def warm() -> Warm:
    """Return the process that forks ranks; it ends with this one."""
    return Warm()


def start_rank(function: str, rank: int, world_size: int, folder: Path, **options: Any) -> Program:
    """Start one rank: a process that calls `function`, named as "module:function", with `options`."""
    given = json.dumps([function, rank, world_size, str(folder), options])
    return start_program(f"from tests.distributed.rank_processes import main; main({given!r})")


def start_program(text: str) -> Program:
    """Start a process that runs a program."""
    return warm().start(text)


def run_program(body: str) -> tuple[int | None, str]:
    """Run a program that begins with some imports; return its exit status, and what it printed."""
    program = start_program(IMPORTS + textwrap.dedent(body))
    printed = end_of(program)
    return program.returncode, printed


def run_ranks(function: str, world_size: int, folder: Path, **options: Any) -> list[Any]:
    """Run a function on all ranks, and return what each returned; a rank that fails fails the test."""
    ranks = [start_rank(function, rank, world_size, folder, **options) for rank in range(world_size)]
    outputs = [end_of(rank) for rank in ranks]
    (folder / "store").unlink(missing_ok=True)  # which other ranks would take for theirs
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(outputs)
    return [json.loads(result_file(folder, rank).read_text()) for rank in range(world_size)]


def end_of(rank: Program, seconds: float = END_SECONDS) -> str:
    """Wait for a rank to end, and return what it printed, other than that it compiles kernels."""
    if not rank.wait(seconds):
        rank.kill()
        assert rank.wait(seconds)
        return f"{rank.printed()}\nkilled after {seconds} s"
    lines = rank.printed().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("graphfeed is compiling its kernels"))


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def run_spawned(function: str, world_size: int, **options: Any) -> tuple[int | None, str]:
    """Run a program that starts ranks without a process group by torch, as PyG's examples do.

    Args:
        function: "module:function", which each rank calls with its rank, the number of ranks, a port and `options`.
        world_size: The number of ranks.
        **options: What JSON can hold.

    Returns:
        The exit status, and what was printed.
    """
    given = json.dumps([function, world_size, free_port(), options])
    program = start_program(f"from tests.distributed.rank_processes import spawn; spawn({given!r})")
    printed = end_of(program)
    return program.returncode, printed


def spawn(given: str) -> None:
    """Be the program that starts ranks."""
    world_size = json.loads(given)[1]
    start: Any = torch.multiprocessing
    # Not start.spawn(), as the examples have it: that begins with imports. All else is the same.
    start.start_processes(be_spawned, (given,), nprocs=world_size, start_method="fork")


def be_spawned(rank: int, given: str) -> None:
    """Be a rank that torch spawned."""
    function, world_size, port, options = json.loads(given)
    torch.set_num_threads(1)
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(rank, world_size, port, **options)


def result_file(folder: Path, rank: int) -> Path:
    return folder / f"result {rank}.json"


def main(given: str) -> None:
    """Be one rank."""
    function, rank, world_size, folder, options = json.loads(given)
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=START_SECONDS),
    )
    module, _, name = function.partition(":")
    result = getattr(importlib.import_module(module), name)(**options)
    result_file(Path(folder), rank).write_text(json.dumps(result))
    distributed.destroy_process_group()
