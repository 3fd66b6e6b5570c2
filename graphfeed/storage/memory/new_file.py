"""Files that appear under their name when they are complete, and stamps that show that they haven't changed since.

The writer records a time, in the file or in its metadata, and sets it as the modification time of the file. Any later
write changes the modification time; `mv`, `cp -p`, rsync and tar keep it, and a plain `cp` does not.
"""

import errno
import glob
import io
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import DTypeLike

from graphfeed.ops.process import regular_file

NS = 10**9


def new_stamp() -> int:
    """Return the current time in seconds as a stamp; even, because some file systems store only even seconds."""
    return int(time.time()) & ~1


def stamp_file(path: Path, stamp: int) -> None:
    """Mark a file as complete and checked, by setting its modification time."""
    os.utime(path, ns=(stamp * NS, stamp * NS))


def has_stamp(file: Path | int, stamp: object) -> bool:
    """Return whether a file is unchanged since `stamp_file`; False if `stamp` is not an int, as in old metadata."""
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
    """Yield a file to write to; once it is complete and on the disk, it replaces the file at `path`.

    Until then, it is a locked file `NAME.xxxxxxxx.part` in the same folder. An error removes it; after a kill, the next
    call does. If writing fails, as with a full disk, the OSError names `path`, the needed and the free space.

    Args:
        path: The file to write.
        needed: Maximum size in bytes, for error messages.
        stamp: Modification time to set; None keeps the time of the last write.
        mode: Permissions of the file, restricted by the umask.
        hidden: Whether the temporary name begins with a dot, for folders where every file is read as data.
        give_name: Called with the temporary and the final path at the end.
    """
    remove_left(path, hidden)
    with explained(path, needed):
        file, part = open_unfinished(path, mode, hidden)
        try:
            with file:
                yield file
                file.flush()
                # Before the rename: after a power cut, the file at `path` must not be empty.
                os.fsync(file.fileno())
            if stamp is not None:
                stamp_file(part, stamp)
            give_name(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def explained(path: Path, needed: int) -> Iterator[None]:
    """Add the path, the needed and the free space to an OSError of writing a file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if type(error) is not OSError or error.filename is not None:  # a subclass, or an error that names a path
            raise
        free = shutil.disk_usage(path.parent).free
        text = f"{error.strerror or error}; it takes up to {needed} bytes, and {free} are free"
        raise OSError(error.errno, text, str(path)) from error


def write_tensors(path: Path, value: Any) -> None:
    """Write tensors, or dicts and tuples of tensors, as `torch.save` does; see `new_file`."""
    # First to memory: an interrupt while torch writes to a file ends the process.
    content = io.BytesIO()
    torch.save(value, content)
    with new_file(path, content.tell()) as file:
        file.write(content.getbuffer())


def map_new_npy(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> "np.memmap[Any, Any]":
    """Map a new `.npy` file of zeros for writing. Its space is reserved, where the system can do so."""
    with explained(path, math.prod(shape) * np.dtype(dtype).itemsize):
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                # If the disk is full, this is an OSError, and writes to the mapping would end the process.
                os.posix_fallocate(file.fileno(), 0, mapped.offset + mapped.nbytes)
    return mapped


def open_unfinished(path: Path, mode: int, hidden: bool) -> tuple[BinaryIO, Path]:
    """Create and lock a new file in the folder of `path`."""
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder to write {path.name} to", str(path.parent))
    while True:
        part = path.with_name(f"{'.' * hidden}{path.name}.{secrets.token_hex(TOKEN_BYTES)}.part")
        file = open(part, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115
        if sys.platform != "win32":
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file, part
        file.close()  # another process removed it as a leftover before it was locked


def remove_left(path: Path, hidden: bool = False) -> None:
    """Remove the unlocked temporary files of `path`: those of processes that were killed while writing."""
    # Windows has no such locks, so leftovers stay there.
    token = "[0-9a-f]" * (2 * TOKEN_BYTES)
    names = f"{'.' * hidden}{glob.escape(path.name)}.{token}.part"
    for left in path.parent.glob(names) if sys.platform != "win32" else ():
        with suppress(OSError, ValueError), open(left, "r+b", opener=regular_file) as file:  # locked, or not a file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
