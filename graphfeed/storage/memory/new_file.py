"""Files that get their name when they are whole, and how they are known to be as they were then, without reading them.

The writer notes a time, in the file or in the metadata beside it, and gives the file that time of modification.
Whatever writes to the file changes that; `mv`, `cp -p`, rsync and tar keep it, and a plain `cp` does not.
"""

import glob
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from graphfeed.ops.process import regular_file

NS = 10**9


def new_stamp() -> int:
    """Return the time for files that are being written, in seconds; even, because some file systems keep no others."""
    return int(time.time()) & ~1


def stamp_file(path: Path, stamp: int) -> None:
    """Note that a file is complete, and what is in it was checked."""
    os.utime(path, ns=(stamp * NS, stamp * NS))


def has_stamp(file: Path | int, stamp: object) -> bool:
    """Tell whether a file is as it was when it got a stamp: what was noted, which earlier releases did not do."""
    return type(stamp) is int and os.stat(file).st_mtime_ns == stamp * NS


if sys.platform != "win32":
    import fcntl

TOKEN_BYTES = 4


@contextmanager
def new_file(
    path: Path,
    needed: int,
    *,
    stamp: int | None = None,
    mode: int = 0o666,
    hidden: bool = False,
    give_name: Callable[[Path, Path], object] = os.replace,
) -> Iterator[BinaryIO]:
    """Yield a file to write to; when it is whole and on the disk, it takes the place of what is at `path`.

    Until then it is `NAME.xxxxxxxx.part`, beside, and held. An error removes it, and `remove_left` after a kill. An
    OSError says why it can't be written; where the disk is full, it names `path` and what was needed.

    Args:
        path: The file to make.
        needed: How many bytes it takes at most, for errors.
        stamp: The time of modification that it gets; None for the time when it was written.
        mode: Who may read and write it, less what the umask forbids.
        hidden: Whether the name begins with a dot until then, for folders whose files are all taken for data.
        give_name: Called with both paths, in the end.
    """
    try:
        file, part = open_part(path, mode, hidden)
        try:
            with file:
                yield file
                file.flush()
                # Before it gets its name: after a power cut, a file of that name must not be empty.
                os.fsync(file.fileno())
            if stamp is not None:
                stamp_file(part, stamp)
            give_name(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if type(error) is not OSError or error.filename is not None:  # others say what is wrong with a path
            raise
        free = shutil.disk_usage(path.parent).free
        text = f"{error.strerror or error}; it takes up to {needed} bytes, and {free} are free; nothing is left there"
        raise OSError(error.errno, text, str(path)) from error


def open_part(path: Path, mode: int, hidden: bool) -> tuple[BinaryIO, Path]:
    """Open a new file beside another one, and hold it."""
    while True:
        part = path.with_name(f"{'.' * hidden}{path.name}.{secrets.token_hex(TOKEN_BYTES)}.part")
        file = open(part, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115
        if sys.platform != "win32":
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file, part
        file.close()  # somebody took it for one that was left, before it was held


def remove_left(path: Path) -> None:
    """Remove what processes that were killed while they wrote a file have left: what nobody holds."""
    # Windows has no such locks, and what was left there stays.
    token = "[0-9a-f]" * (2 * TOKEN_BYTES)
    for left in path.parent.glob(f"{glob.escape(path.name)}.{token}.part") if sys.platform != "win32" else ():
        with suppress(OSError, ValueError), open(left, "r+b", opener=regular_file) as file:  # held, or no file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
