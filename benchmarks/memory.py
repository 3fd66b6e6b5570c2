"""What processes hold of the machine's memory, each measured in a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import graphfeed as gf

Given = ParamSpec("Given")
Result = TypeVar("Result")

STATUS = "/proc/self/status"
PARTS = ("VmHWM", "RssAnon", "RssFile")


@dataclass(frozen=True)
class Memory:
    """Bytes that a process holds of the machine's memory."""

    whole: int
    """The most that it held; a file's pages that other processes hold too count as well."""
    anonymous: int
    """What is its own."""
    file: int
    """Libraries and other mapped files, most of which the system can drop and read again."""


def in_new_process(function: Callable[Given, Result], *args: Given.args, **options: Given.kwargs) -> Result:
    """Call a function in a new process, so that nothing of another run is left in its memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **options).result()


def memory(status: str | None = None) -> Memory:
    """Return what this process holds, or another one whose status this is; `getrusage` counts the parent's peak."""
    text = Path(STATUS).read_text() if status is None else status
    whole, anonymous, file = (1024 * int(text.split(f"{what}:")[1].split()[0]) for what in PARTS)
    return Memory(whole, anonymous, file)


def memory_after(code: str) -> Memory:
    """Return what a new process holds that has only run some code."""
    root = Path(gf.__file__).parents[1]
    show = f"{code}; print(open({STATUS!r}).read())"
    done = subprocess.run([sys.executable, "-c", show], cwd=root, capture_output=True, text=True, check=True)
    return memory(done.stdout)
