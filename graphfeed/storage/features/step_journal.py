"""A journal of a table in files, which keeps the rows that a step overwrites until the step is complete."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary, finalize

import torch

from graphfeed.ops.arguments import check_ids
from graphfeed.ops.process import after_fork_in_child
from graphfeed.ops.rows import gather_rows
from graphfeed.storage.memory.new_file import explained

if sys.platform != "win32":
    import fcntl

HEAD_BYTES = 512
"""Size of the JSON text at the beginning, which one write replaces. The ids, rows and states to restore follow."""
ALL = -1
"""In place of the number of rows to restore: the whole table is being replaced."""


class ProcessLock:
    """A lock of a file, which is created, against other processes. It ends with its `file`, and with the process."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab")
        finalize(self, self.file.close)
        if sys.platform != "win32":
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RuntimeError(f"{path} is that of a table of another process; wait for it, or end it") from error
            except OSError:
                pass  # the file system has no locks


LOCKS: WeakValueDictionary[Path, ProcessLock] = WeakValueDictionary()
"""The locks of this process, which its tables share."""


def lock_of(path: Path) -> ProcessLock:
    """Return the lock of a file. Keep it as long as this process may write to what the file is about.

    Raises:
        RuntimeError: Another process has the lock.
    """
    lock = LOCKS.get(path.resolve())
    if lock is None or lock.file.closed:
        lock = LOCKS[path.resolve()] = ProcessLock(path)
    return lock


@after_fork_in_child
def leave_locks_to_parent() -> None:
    """Close the files of the locks, so that they end with the parent and not with the last of its children."""
    for lock in LOCKS.values():
        lock.file.close()


class StepJournal:
    """The journal of a table. A process may be killed at any time; after a power cut, the files may be inconsistent.

    Args:
        path: The file of the journal.
        tables: The tables, which are mapped from files.
        lock: The lock of the file.
    """

    def __init__(self, path: Path, tables: Mapping[str, torch.Tensor], lock: ProcessLock) -> None:
        self._path, self._tables, self._lock = path, tables, lock

    @contextmanager
    def change(self, offsets: torch.Tensor | None, options: Any) -> Iterator[None]:
        """Keep the rows at some offsets in the journal while they are changed; None: all rows, which are not kept.

        `options` returns the options of the table; the journal has those before the change until it is complete.
        """
        count = ALL if offsets is None else offsets.numel()
        row_bytes = 8 + sum(table.shape[1] * table.itemsize for table in self._tables.values())
        with explained(self._path, HEAD_BYTES + max(count, 0) * row_bytes), self._path.open("r+b") as file:
            if offsets is not None:
                file.seek(HEAD_BYTES)
                for values in (offsets.long(), *(gather_rows(table, offsets) for table in self._tables.values())):
                    write_all(file, values)
            write_head(file, count, options())
            try:
                yield
            except BaseException:
                if offsets is not None:
                    write_head(file, 0, options())  # nothing was changed, or all of it
                raise
            write_head(file, 0, options())

    def restore(self) -> dict[str, Any]:
        """Undo a step that was not completed, and return the options of the table.

        Raises:
            ValueError: The whole table was being replaced, or the journal is damaged.
        """
        try:
            with self._path.open("r+b") as file:
                options: dict[str, Any] = json.loads(file.read(HEAD_BYTES))
                count = options.pop("to_restore")
                if count == ALL:
                    raise ValueError("the program ended while it replaced the table")
                offsets = read_all(file, torch.empty(count, dtype=torch.int64, device="cpu"))
                tables = [*self._tables.values()]
                check_ids("offsets", offsets, len(tables[0]), ValueError)
                found = [read_all(file, table.new_empty(count, table.shape[1])) for table in tables]
                for table, values in zip(tables, found, strict=True):
                    table[offsets] = values
                write_head(file, 0, options)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{self._path} can't be used: {error}; delete the files of the table") from error
        return options


def write_head(file: IO[Any], to_restore: int, options: dict[str, Any]) -> None:
    file.seek(0)  # also writes the buffer
    file.write(json.dumps({"to_restore": to_restore, **options}).encode().ljust(HEAD_BYTES))
    file.flush()


def write_all(file: IO[Any], values: torch.Tensor) -> None:
    file.write(bytes_of(values))


def read_all(file: Any, out: torch.Tensor) -> torch.Tensor:
    if file.readinto(bytes_of(out)) != out.nbytes:
        raise ValueError("it is too short")
    return out


def bytes_of(values: torch.Tensor) -> memoryview:
    return values.view(-1).view(torch.uint8).numpy().data
