"""Sampling servers in processes of their own, which tests kill and stop."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import graphfeed as gf
from tests.scripts import REPOSITORY

TOKEN = "a secret of the tests"
PIPELINE = """
from tests import pipelines
pipe = pipelines.{name}()
"""


@dataclass
class Served:
    """A server that was started."""

    process: "subprocess.Popen[str]"
    address: str

    def end(self) -> list[str]:
        """End the server as a terminal would; return what it printed since it began."""
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        printed, _ = self.process.communicate(timeout=60)
        return printed.splitlines()


@contextmanager
def servers(folder: object, count: int, name: str = "homogeneous") -> Iterator[list[Served]]:
    """Start servers of one of the pipelines that many tests run."""
    script, token = f"{folder}/{name}.py", f"{folder}/token"
    with open(script, "w") as file:
        file.write(PIPELINE.format(name=name))
    with open(token, "w") as file:
        file.write(TOKEN + "\n")
    command = [sys.executable, "-m", "graphfeed", "serve", script, "--bind", "127.0.0.1:0", "--token-file", token]
    processes = [
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(count)
    ]
    try:
        started = []
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), line + process.stdout.read()
            started.append(Served(process, line.split()[-1]))
        yield started
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def loader(
    pipe: gf.Datapipe, addresses: list[str], timeout: float = 60.0, num_workers: int | None = None
) -> gf.DataLoader:
    """Return a loader that reads from servers, one mini-batch ahead of each request that is made at once."""
    return gf.DataLoader(pipe, num_workers, servers=addresses, token=TOKEN, timeout=timeout, seed=3, prefetch_factor=1)
