"""A folder that appears when it is finished, and a lock against other processes."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphfeed.ops.process import after_fork_in_child
from graphfeed.storage.datasets.array_files import sync_folder, write_text

if sys.platform != "win32":
    import fcntl

LOCK = "lock"
SCRATCH = "scratch"
"""Subfolder for files that only an unfinished folder needs."""
HELD: set[int] = set()
"""Descriptors of the locks that this process holds."""


@contextmanager
def new_folder(
    folder: Path, *, replace: bool = False, resume: str | None = None, key: str | None = None
) -> Iterator[Path]:
    """Yield a folder to write to, which is renamed to `folder` when it is finished and on the disk.

    Until then it is `.NAME.unfinished`, next to `folder`. An error removes it, and so does the next call after a crash.
    Writers must sync their files; the names are synced here. A folder that can't be replaced, or that another process
    is writing, raises a FileExistsError.

    Args:
        folder: The folder to create; links are followed. It must not exist or be empty.
        replace: Whether a folder that is not empty may be replaced.
        resume: The path of a journal, such as "scratch/journal.json". If there is one, the folder is kept after an
            error, and the next call continues with it. `SCRATCH` is removed at the end.
        key: Identity of the folder's inputs. It is written to the journal, and a folder with another key is started
            from scratch. After a ValueError, about invalid values, nothing is kept then.
    """
    folder = folder.resolve() if replace else check_new_folder(folder)
    unfinished, outdated = (folder.with_name(f".{folder.name}.{word}") for word in ("unfinished", "outdated"))
    unfinished.mkdir(parents=True, exist_ok=True)
    with process_lock(unfinished / LOCK):
        journal = None if resume is None else unfinished / resume
        try:
            start_or_resume(unfinished, journal, key)
            shutil.rmtree(outdated, ignore_errors=True)
            yield unfinished
            put_in_place(unfinished, folder, outdated if replace else None)
        except BaseException as error:
            # With a key, values that are invalid now are also invalid in the next run.
            fits = key is None or not isinstance(error, ValueError)
            if journal is not None and journal.is_file() and fits:
                left = f"the next run with the same files continues after the finished steps, kept in {unfinished}"
                error.add_note(left)
            else:
                left = "nothing is left there"
                shutil.rmtree(unfinished, ignore_errors=True)
            if type(error) is OSError and error.filename is None:  # for example, if the disk is full
                raise OSError(error.errno, f"{error.strerror or error}; {left}", str(folder)) from error
            raise
        # Only now, so that the next run can continue if the folder can't be renamed.
        (folder / LOCK).unlink(missing_ok=True)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        sync_folder(folder.parent)
        shutil.rmtree(outdated, ignore_errors=True)


def start_or_resume(unfinished: Path, journal: Path | None, key: str | None) -> None:
    """Remove what is in the folder, unless its journal has the key."""
    if journal is None or not journal.is_file() or (key is not None and journal.read_text() != key):
        clear_folder(unfinished)
    if journal is not None and key is not None:
        journal.parent.mkdir(exist_ok=True)
        write_text(journal, key)


def put_in_place(unfinished: Path, folder: Path, outdated: Path | None) -> None:
    """Sync the names in a finished folder and rename it; a folder in its place is moved to `outdated`, if given."""
    for path in (unfinished, *unfinished.rglob("*")):
        if path.is_dir():
            sync_folder(path)
    if outdated is not None and folder.exists():
        # A folder that is not empty can't be replaced in one step.
        folder.rename(outdated)
    elif check_new_folder(folder).exists():
        folder.rmdir()
    unfinished.rename(folder)


def check_new_folder(folder: Path) -> Path:
    """Return the path of a folder to create, without links. One that is not empty raises a FileExistsError."""
    folder = folder.resolve()
    if not folder.exists():
        return folder
    if not folder.is_dir() or any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not an empty folder; remove it, or write to another one")
    reason = "it is the working folder" if folder == Path.cwd() else None
    if reason is None:
        try:  # Mounts and permissions decide whether a folder can be replaced.
            folder.rmdir()
            folder.mkdir()
        except OSError as error:
            reason = error.strerror
    if reason is not None:
        raise FileExistsError(f"{folder} can't be replaced: {reason}; write to a folder in it, or to another one")
    return folder


@contextmanager
def process_lock(lock: Path, wait_seconds: float = 0) -> Iterator[None]:
    """Hold a lock against other processes, waiting up to `wait_seconds` for it. Does nothing on Windows."""
    if sys.platform == "win32":
        yield
        return
    # The system releases the lock even if the process crashes; the file remains.
    give_up = time.monotonic() + wait_seconds
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks only files that are open for writing.
    HELD.add(descriptor)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not wait_seconds:
                    raise FileExistsError(f"another process is writing {lock.parent}; wait for it or end it") from error
                if time.monotonic() > give_up:
                    raise TimeoutError(
                        f"another process has been writing {lock.parent} for {wait_seconds / 3600:.1f} hours; end it "
                        "if it hangs, and try again"
                    ) from None
                time.sleep(0.1)
        # The previous holder may have removed the file, and the next process creates another one.
        if not lock.exists() or not os.path.samestat(os.fstat(descriptor), lock.stat()):
            raise FileExistsError(f"another process has just written {lock.parent}; try again")
        yield
    finally:
        # A forked child has already closed its copy.
        if descriptor in HELD:
            HELD.remove(descriptor)
            os.close(descriptor)


@after_fork_in_child
def close_locks() -> None:
    # A forked process's copies would keep the locks after the process that holds them has ended.
    while HELD:
        os.close(HELD.pop())


def clear_folder(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:  # this process holds it
            path.unlink()
