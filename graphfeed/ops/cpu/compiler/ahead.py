"""Helper processes that compile kernels, so that Numba is imported and configured there and not in a user's process.

A helper imports the kernels without torch, whose import takes longer. It reads jobs from stdin, one JSON line each.
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
"""Defines the two upper packages as folders alone, so that nothing but kernels is imported."""
SETTINGS = {
    "NUMBA_BOUNDSCHECK": "0",  # kernels can't raise
    "NUMBA_DEBUGINFO": "0",
    "NUMBA_DISABLE_JIT": "0",
    "NUMBA_EXTEND_VARIABLE_LIFETIMES": "0",
    "NUMBA_LOOP_VECTORIZE": "1",
    "NUMBA_OPT": "3",
    "NUMBA_SLP_VECTORIZE": "0",
}
"""The settings of Numba that change machine code. A helper doesn't inherit a program's own settings."""
TARGET = {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}
"""Settings that a helper does inherit: they name the processor, and are part of a file's name."""
IDLE_SECONDS = 10.0
"""How long a helper waits for its next job before it ends."""
MOST_HELPERS = 4
"""The most helpers that compile the kernels of one pipeline. Each takes some 200 MB."""
MOST_FAILURES = 3
"""How many failures an error describes."""
IDLE: "list[subprocess.Popen[str]]" = []
"""The helpers that have no job now."""


def all_kernels() -> list[tuple[Kernel, tuple[str, ...]]]:
    """Return every kernel of the package with each choice of its dtypes."""
    found = []
    for module in sorted(part.name for part in walk_packages([str(SOURCES)], f"{PACKAGE}.") if not part.ispkg):
        if module.startswith(f"{__package__}.") and not module.endswith(".program"):
            continue
        for kernel in vars(import_module(module)).values():
            if isinstance(kernel, Kernel) and kernel.__module__ == module:
                found += [(kernel, dtypes) for dtypes in kernel.signature.variants()]
    return found


def compile_all(processes: int | None = None) -> Iterator[KernelLoad]:
    """Compile all kernels, or find them on disk, and yield a record of each when it is done.

    Raises:
        RuntimeError: Kernels that could not be compiled, once all others are done.
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
    """Compile several kernels at once, in as many helpers as there are cores, and load them."""
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
        The name of the machine code's function, and the object file. None if no process can be started, or if it ends
        without an answer.

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
                process = start()
            except OSError:
                return None
        try:
            answer = ask(process, [kernel.__module__, kernel.__name__, *dtypes])
        except (OSError, ValueError):  # an idle helper has just ended, so another one is asked
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


def start() -> "subprocess.Popen[str]":
    """Start a helper, which Ctrl-C in a terminal doesn't reach."""
    command = [sys.executable, "-P", "-c", PROGRAM.format(folder=str(SOURCES.parent))]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_") or name in TARGET}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, env=inherited | SETTINGS, stdin=pipe, stdout=pipe, stderr=null, text=True, start_new_session=True
    )


def ask(process: "subprocess.Popen[str]", job: list[str]) -> Any:
    """Return a helper's answer to a job, or raise an OSError or a ValueError if the helper has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def end(process: "subprocess.Popen[str]") -> None:
    """End a helper and close its pipes."""
    process.kill()
    process.communicate()


@atexit.register
def end_idle() -> None:
    """End all helpers that have no job."""
    while IDLE:
        end(IDLE.pop())


@after_fork_in_child
def forget_helpers() -> None:
    """Close a forked process's copies of the pipes: the helpers belong to its parent."""
    while IDLE:
        process = IDLE.pop()
        process.returncode = 0  # it is no child of this process, so it can't be waited for
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def serve() -> None:
    """Answer each job on stdin with the kernel's machine code, or with a text that says why there is none."""
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            module, name, *dtypes = json.loads(jobs.get(timeout=IDLE_SECONDS))
        except queue.Empty:
            os._exit(0)  # a daemon thread that reads stdin would disturb a regular exit
        try:
            from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

            symbol, code = compile_kernel(getattr(import_module(module), name), tuple(dtypes))
            answer: Any = symbol, base64.b64encode(code).decode()
        except Exception as error:
            answer = f"{module}.{name} for {dtypes}: {type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
