"""Files given by users, optional dependencies, entry points of optional packages, and progress bars."""

import os
import re
import stat
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Self

from tqdm import tqdm

from graphfeed.ops.process.forks import ForkLock, after_fork_in_child


def regular_file(path: str | os.PathLike[str], flags: int) -> int:
    """Opener for `open(path, "rb", opener=regular_file)` that raises a ValueError for pipes and devices.

    Reading these may wait forever, or never end. Folders are left to `open`, which rejects them.

    Example:
        >>> open("/dev/null", "rb", opener=regular_file)
        Traceback (most recent call last):
            ...
        ValueError: /dev/null is not a regular file, but a pipe or a device; give the path of a file
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise ValueError(f"{path} is not a regular file, but a pipe or a device; give the path of a file")


def natural_order(path: str | os.PathLike[str]) -> tuple[list[str], str]:
    """Return a key that sorts paths by the numbers in their names, folder by folder.

    Example:
        >>> sorted(["part.10", "part.2", "part.1", "part"], key=natural_order)
        ['part', 'part.1', 'part.2', 'part.10']
    """
    text = os.fspath(path)
    # Names have at most 255 bytes, so all numbers get the same width.
    return [re.sub(r"\d+", lambda digits: digits[0].zfill(255), part) for part in Path(text).parts], text


def local_path(name: str, path: str | os.PathLike[str]) -> str:
    """Return a path as a string. Raise a ValueError if it is the URL of a remote storage."""
    text = os.fspath(path)
    if re.match(r"[A-Za-z][\w+.-]+:/", text):  # pathlib merges two slashes
        raise ValueError(
            f"{name} must be a path on this machine, but is {text!r}; copy the files, or mount the storage"
        )
    return text


class Closeable(ABC):
    """A context manager that calls `close` on exit."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Has no effect if called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


ENTRY_POINTS: dict[str, dict[str, str]] = {"converters": {}, "executors": {}, "rules": {}, "stages": {}}
"""Extensions of the core by optional packages, as "module:name" strings that are imported at the first use.

The core refers to them by fixed names, such as "to_pyg_data"; stages have their fluent names. The root package fills
the table, so that no package imports a higher one. It is imported before any of its modules, even when a process
unpickles a stage.
"""


def load_entry_point(group: str, name: str) -> Any:
    """Return the extension with a name, importing its module if necessary."""
    return resolve_name(ENTRY_POINTS[group][name])


IMPORTED: dict[str, ModuleType] = {}
LOCK = ForkLock()


def import_optional(module: str, purpose: str, remedy: str) -> ModuleType:
    """Import an optional module without warnings. If it is missing, the ImportError has its purpose and a remedy."""
    known = IMPORTED.get(module)
    # A module that is only in sys.modules may be partially imported by another thread.
    if known is not None and sys.modules.get(module) is known:
        return known
    try:
        # Warning filters are shared by all threads: concurrent changes would leave wrong filters.
        with LOCK.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            IMPORTED[module] = found = import_module(module)
            return found
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}, which is not installed: {remedy}", name=package) from error


def install_hint(extra: str) -> str:
    """Return how to install an extra of graphfeed, for error messages.

    Example:
        >>> install_hint("arrow")
        'pip install "graphfeed[arrow]"'
    """
    return f'pip install "graphfeed[{extra}]"'


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A progress bar without tqdm's monitor, a thread that would run until the end of the program.

    The monitor redraws bars that are rarely updated. These bars check the time at each update instead.
    """

    monitor_interval = 0


@after_fork_in_child
def renew_lock() -> None:
    """Give progress bars a lock of this process.

    tqdm's own is shared with forked processes, and Ctrl-C may leave it held. Then every bar would hang, in all of them.
    """
    ProgressBar.set_lock(threading.RLock())


renew_lock()


def progress_bar(name: str, total: int | None, unit: str, *, wanted: bool = True) -> ProgressBar:
    """Return a progress bar, which appears after a second, in terminals only, if it is `wanted`."""
    return ProgressBar(
        desc=name,
        total=total,
        unit=unit,
        unit_scale=True,
        disable=None if wanted else True,
        delay=1,
        dynamic_ncols=True,
        miniters=0,
    )
