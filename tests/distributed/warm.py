"""A process that has imported what ranks need, and forks one for each program that it is asked to run.

Starting an interpreter for each rank would take several seconds of it, for imports and for loading kernels.
"""

import atexit
import io
import json
import os
import select
import signal
import sys
from contextlib import suppress
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.distributed import dist_loaders, joint, lost_ranks, pyg_data, sharing, traffic  # noqa: F401
from tests.distributed.equal_pipelines import ALL

CHECK_SECONDS = 0.02


def say(**values: Any) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


def reap(children: set[int]) -> None:
    """Tell which children have ended, and how."""
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.remove(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


def take_place(output: str) -> None:
    """Let a child print to a file, and read nothing."""
    for path, flags, targets in ((os.devnull, os.O_RDONLY, (0,)), (output, os.O_WRONLY | os.O_CREAT, (1, 2))):
        opened = os.open(path, flags, 0o600)
        for target in targets:
            os.dup2(opened, target)
        os.close(opened)


def serve() -> str:
    """Fork a child for each program until nobody asks any more; return a program in its child."""
    children: set[int] = set()
    stdin = io.FileIO(0, closefd=False)
    say(ready=True)
    while True:
        asked, _, _ = select.select([stdin], [], [], CHECK_SECONDS if children else None)
        reap(children)
        if not asked:
            continue
        line = stdin.readline()
        if not line:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        program, output = json.loads(line)
        pid = os.fork()
        if pid == 0:
            take_place(output)
            return str(program)
        children.add(pid)
        say(started=pid)


def warm_up() -> None:
    """Load the kernels that ranks run, and PyG."""
    for build in ALL.values():
        next(iter(gf.DataLoader(build(), 0, seed=0)))
    with suppress(pytest.skip.Exception):
        pyg_data.classes()


def leave() -> None:
    """End the process, as the last of its exit handlers: a fork would copy all memory to free it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    program = compile(serve(), "<rank>", "exec")
    atexit.register(leave)
    CODE = 0
    try:
        exec(program)
    except SystemExit as error:
        CODE = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        CODE = 1
        raise
