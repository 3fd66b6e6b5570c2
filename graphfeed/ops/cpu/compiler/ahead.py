"""Processes that compile kernels, one for each line that they read, without torch, whose import takes longer."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from graphfeed.ops.cpu.compiler.folders import SOURCES, folders
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.kernel_load import KernelLoad

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
"""The packages stand there as folders alone, so that nothing is imported but kernels."""
MOST_HELPERS = 3
"""They compile what one pipeline needs, and take half a gigabyte each."""
MOST_FAILURES = 3
"""How many are described."""


def all_kernels() -> list[tuple[str, str, list[str]]]:
    """Return the module and the name of every kernel with each choice of its dtypes."""
    found = []
    for module in sorted(part.name for part in walk_packages([str(SOURCES)], f"{PACKAGE}.") if not part.ispkg):
        if module.startswith(f"{__package__}.") and not module.endswith(".program"):
            continue
        for name, kernel in vars(import_module(module)).items():
            if isinstance(kernel, Kernel) and kernel.__module__ == module:
                found += [(module, name, list(dtypes)) for dtypes in kernel.signature.variants()]
    return found


def compile_all(processes: int | None = None) -> Iterator[KernelLoad]:
    """Compile all kernels, or find them on disk, and yield each once it is there."""
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    kernels = all_kernels()
    count = min(processes or cores(), len(kernels))
    for job in [*kernels, *[None] * count]:
        jobs.put(job)
    threads = [threading.Thread(target=hand_out, args=(jobs, results), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    failures = []
    for _ in kernels:
        load = results.get()
        if isinstance(load, str):
            failures.append(load)
        else:
            yield load
    if failures:
        more = " ..." if len(failures) > MOST_FAILURES else ""
        raise RuntimeError(
            f"{len(failures)} kernels could not be compiled: {'; '.join(failures[:MOST_FAILURES])}{more}"
        )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hand_out(jobs: Any, results: Any) -> None:
    """Have a process compile kernels until a job is None, and another one where that process ends."""
    job = jobs.get()
    while job is not None:
        try:
            with start(stdout=subprocess.PIPE) as process:
                while job is not None:
                    results.put(ask(process, job))
                    job = jobs.get()
        # It has ended, with or without half an answer.
        except (OSError, ValueError):
            results.put(f"the process that compiled {job[0]}.{job[1]} ended")
            job = jobs.get()


def ask(process: "subprocess.Popen[str]", job: Any) -> KernelLoad | str:
    """Have a process compile a kernel, and return its answer; an OSError or a ValueError if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return KernelLoad(*answer) if isinstance(answer, list) else str(answer)


def start(**streams: Any) -> "subprocess.Popen[str]":
    """Start a process that compiles the kernels which its stdin names."""
    command = [sys.executable, "-P", "-c", PROGRAM.format(folder=str(SOURCES.parent))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **streams)


@contextmanager
def helped(missing: list[tuple[Kernel, tuple[str, ...]]]) -> Iterator[None]:
    """Have other processes compile kernels from the last on, while this one compiles them from the first on."""
    helpers = []
    if folders()[1] is not None and sys.executable and not getattr(sys, "frozen", False):
        # Whoever comes second to a kernel finds it on disk, or waits for it.
        jobs = [json.dumps([kernel.__module__, kernel.__name__, list(dtypes)]) for kernel, dtypes in reversed(missing)]
        count = min(cores() - 1, MOST_HELPERS)
        with suppress(OSError):  # there are no more processes to be had
            for number in range(count):
                helpers.append(start(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                stdin = helpers[-1].stdin
                assert stdin is not None
                stdin.write("\n".join(jobs[number::count]) + "\n")
                stdin.close()
    try:
        yield
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()


def serve() -> None:
    """Compile the kernels that stdin names, and say on stdout how each went."""
    for line in sys.stdin:
        module, name, dtypes = json.loads(line)
        loads: list[KernelLoad] = []
        try:
            with watch_kernels(loads.append):
                getattr(import_module(module), name).code(tuple(dtypes))
            answer: Any = loads[0]
        except Exception as error:  # it is raised where somebody waits for it
            answer = f"{module}.{name} for {dtypes}: {type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
