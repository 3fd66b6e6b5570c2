"""A process that has imported the modules of test programs, and forks a child for each program that it receives.

Starting an interpreter for each would take several seconds of it, for imports and for loading kernels. A fork differs
from one: modules are imported already, settings that are read on import have no effect any more, and a program that is
interrupted ends with status 1.
"""

import atexit
import os
import sys


def leave() -> None:
    """End the process, as the last of its exit handlers: a fork would copy all memory to free it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STATUS)


STATUS = 0
atexit.register(leave)  # before any that an import registers, as the last one runs first

import io
import json
import select
import signal
import types
from contextlib import suppress
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds import joint, pipelines, pyg_data  # noqa: F401
from tests.kinds.equal_pipelines import ALL
from tests.stand_ins import traffic  # noqa: F401

CHECK_SECONDS = 0.02


def say(**values: Any) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


def reap(children: set[int]) -> None:
    """Report the children that have ended, with their exit codes."""
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.remove(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


def take_place(asked: dict[str, Any]) -> str:
    """Set a child's output files, empty input and working directory; return its program."""
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for path, flags, target in (
        (os.devnull, os.O_RDONLY, 0),
        (asked["output"], written, 1),
        (asked["errors"], written, 2),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    os.environ.update(asked["settings"])
    os.chdir(asked["cwd"])
    sys.argv[:] = asked["arguments"]
    return str(asked["program"])


def serve() -> str:
    """Fork a child for each program until there are no more requests; return the program in its child."""
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
        pid = os.fork()
        if pid == 0:
            return take_place(json.loads(line))
        children.add(pid)
        say(started=pid)


def warm_up() -> None:
    """Load the kernels that ranks run, and PyG."""
    for build in ALL.values():
        next(iter(gf.DataLoader(build(), 0, seed=0)))
    with suppress(pytest.skip.Exception):
        pyg_data.classes()


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    program = compile(serve(), "<string>", "exec")
    # It is the main module, like that of `python -c`: unpickling its objects in a new process finds no file.
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    try:
        exec(program, vars(main))
    except SystemExit as error:
        STATUS = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        STATUS = 1
        raise
