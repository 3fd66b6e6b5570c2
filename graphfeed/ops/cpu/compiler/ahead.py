"""Helper processes that compile kernels, so that Numba is imported and configured there, not in the user's process.

A helper imports the kernels without torch, whose import would take longer. It reads jobs from stdin, as JSON lines.
"""

import atexit
import base64
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.store import find_or_compile
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.process import after_fork_in_child, as_they_end, result_of

PACKAGE = "graphfeed.ops.cpu"
PROGRAM = """
import sys, types, pathlib
folder = pathlib.Path({folder!r})
for name, path in (("graphfeed", folder.parent), ("graphfeed.ops", folder)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(path)]
from graphfeed.ops.cpu.compiler.ahead import serve
serve()
"""
"""Program of a helper. It defines the two upper packages as bare folders, so that only kernels are imported."""
SETTINGS = {
    "NUMBA_BOUNDSCHECK": "0",  # kernels can't raise
    "NUMBA_DEBUGINFO": "0",
    "NUMBA_DISABLE_JIT": "0",
    "NUMBA_EXTEND_VARIABLE_LIFETIMES": "0",
    "NUMBA_LOOP_VECTORIZE": "1",
    "NUMBA_OPT": "3",
    "NUMBA_SLP_VECTORIZE": "0",
}
"""Numba's settings that affect machine code. A helper doesn't inherit those of the program."""
TARGET = {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}
"""Settings that a helper inherits: they select the processor, and are part of the names of files."""
IDLE_SECONDS = 10.0
"""Time for which a helper waits for its next job before it exits."""
MOST_HELPERS = 4
"""Maximum number of helpers that compile the kernels of one pipeline. Each needs some 200 MB."""
MOST_FAILURES = 3
"""Maximum number of failures that an error describes."""
IDLE: "list[subprocess.Popen[str]]" = []
"""Helpers without a job."""


def all_kernels() -> list[tuple[Kernel, tuple[str, ...]]]:
    """Return all kernels of the package, each with all its choices of dtypes."""
    found = []
    for module in sorted(part.name for part in walk_packages([str(SOURCES)], f"{PACKAGE}.") if not part.ispkg):
        if module.startswith(f"{__package__}.") and not module.endswith(".program"):
            continue
        for kernel in vars(import_module(module)).values():
            if isinstance(kernel, Kernel) and kernel.__module__ == module:
                found += [(kernel, dtypes) for dtypes in kernel.signature.variants()]
    return found


def compile_all(processes: int | None = None) -> Iterator[KernelLoad]:
    """Compile all kernels that are not on disk, and yield a record of each kernel when it is ready.

    Raises:
        RuntimeError: Some kernels could not be compiled; raised after all others are done.
    """
    failures = []
    pool = ThreadPoolExecutor(processes or cores())
    try:
        for done in as_they_end([pool.submit(find_or_compile, *pair) for pair in all_kernels()]):
            if error := done.exception():
                failures.append(str(error))
            else:
                yield done.result()[1]
    finally:
        pool.shutdown(cancel_futures=True)
    if failures:
        more = " ..." if len(failures) > MOST_FAILURES else ""
        raise RuntimeError(
            f"{len(failures)} kernels could not be compiled: {'; '.join(failures[:MOST_FAILURES])}{more}"
        )


def load_together(missing: list[tuple[Kernel, tuple[str, ...]]]) -> None:
    """Compile several kernels concurrently, with up to `MOST_HELPERS` helpers, one per core, and load them."""
    pool = ThreadPoolExecutor(min(cores(), MOST_HELPERS))
    try:
        for done in [pool.submit(kernel.code, dtypes) for kernel, dtypes in missing]:
            result_of(done)
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_in_helper(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[str, bytes] | None:
    """Compile a kernel of the package in a helper.

    Returns:
        The function's name in the object file, and the object file. None if no process can be started, or if it exits
        without a response.

    Raises:
        RuntimeError: The kernel can't be compiled.
    """
    is_new = False
    while not is_new:
        try:
            process = IDLE.pop()
        except IndexError:
            is_new = True
            if not sys.executable or getattr(sys, "frozen", False):
                return None
            try:
                process = start_helper()
            except OSError:
                return None
        try:
            answer = ask(process, [kernel.__module__, kernel.__name__, "", *dtypes])
        except (OSError, ValueError):  # an idle helper has just exited: try another one
            end(process)
            continue
        except BaseException:
            end(process)
            raise
        IDLE.append(process)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer[0], base64.b64decode(answer[1])
    return None


def start_helper(**target: str) -> "subprocess.Popen[str]":
    """Start a helper in a new session, so that Ctrl-C in the terminal doesn't reach it.

    Args:
        target: Environment variables that select another processor than this process does.
    """
    command = [sys.executable, "-P", "-c", PROGRAM.format(folder=str(SOURCES.parent))]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_") or name in TARGET}
    env, pipe, null = inherited | SETTINGS | target, subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=null, text=True, start_new_session=True)


def ask(process: "subprocess.Popen[str]", job: list[str]) -> Any:
    """Send a job to a helper and return its response. Raises OSError or ValueError if the helper has exited."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def end(process: "subprocess.Popen[str]") -> None:
    """Kill a helper and close its pipes."""
    process.kill()
    process.communicate()


@atexit.register
def end_idle() -> None:
    """Kill all idle helpers."""
    while IDLE:
        end(IDLE.pop())


@after_fork_in_child
def forget_helpers() -> None:
    """Close a forked process's copies of the pipes, because the helpers belong to its parent."""
    while IDLE:
        process = IDLE.pop()
        process.returncode = 0  # not a child of this process, so it can't be waited for
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def serve() -> None:
    """Compile the kernel of each job on stdin, and write its machine code, or an error message, to stdout."""
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            module, name, symbol, *dtypes = json.loads(jobs.get(timeout=IDLE_SECONDS))
        except queue.Empty:
            os._exit(0)  # the daemon thread that reads stdin would disturb a regular exit
        try:
            from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

            symbol, code = compile_kernel(getattr(import_module(module), name), tuple(dtypes), symbol)
            answer: Any = symbol, base64.b64encode(code).decode()
        except Exception as error:
            answer = f"{module}.{name} for {dtypes}: {type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
