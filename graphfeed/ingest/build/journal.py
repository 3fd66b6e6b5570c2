"""The folder of a data set that is not finished yet, and the journal of what is done in it."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphfeed.storage.datasets.array_files import sync_folder

if sys.platform != "win32":
    import fcntl

JOURNAL = "journal.json"
SCRATCH = "scratch"
VERSION = 1
"""Of what a step writes: a journal of another version is not gone on with."""


def unfinished_of(folder: Path) -> Path:
    """Return where a folder is written before it is finished: beside it, so that it can be renamed."""
    return folder.with_name(f".{folder.name}.unfinished")


def digest(value: Any) -> str:
    """Return a short text that differs if plain values differ."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


class Journal:
    """What is done of a data set, kept on disk after each step.

    Args:
        folder: The unfinished folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.steps: dict[str, Any] = {}
        self.gone_on = False
        """Whether steps of an earlier run were found."""
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            if known["version"] == VERSION:
                self.steps = dict(known["steps"])
                self.gone_on = bool(self.steps)
        except (OSError, ValueError, TypeError, KeyError):
            pass  # none was written, or not as a whole: all is done again

    def find(self, step: str, key: str) -> dict[str, Any] | None:
        """Return what was noted of a step, if it was begun with the same files and options; otherwise forget it."""
        known = self.steps.get(step)
        if known is None or known["key"] != key:
            self.steps.pop(step, None)
            return None
        return dict(known)

    def note(self, step: str, key: str, **state: Any) -> None:
        """Note how far a step is. What it wrote must be on the disk by now."""
        self.steps[step] = {"key": key, **state}
        self._write()

    def keep(self, steps: Iterable[str]) -> None:
        """Forget all other steps. What they wrote may be removed then."""
        kept = set(steps)
        others = [step for step in self.steps if step not in kept]
        for step in others:
            del self.steps[step]
        if others:
            self._write()

    def _write(self) -> None:
        part = self.path.with_name(f"{JOURNAL}.part")
        with part.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "steps": self.steps}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)


@contextmanager
def unfinished_folder(folder: Path, keep: bool = True) -> Iterator[Path]:
    """Yield a folder beside another one, which takes that one's name when it is finished.

    Args:
        folder: The folder to make.
        keep: Whether it stays after an error, if there is a journal to go on with.

    Raises:
        FileExistsError: The folder exists and is not empty, or another process is writing it.
    """
    check_target(folder)
    folder = folder.resolve()
    unfinished = unfinished_of(folder)
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        with only_this_process(unfinished):
            yield unfinished
            sync_folder(unfinished)
            check_target(folder)
            if folder.exists():
                folder.rmdir()
            unfinished.rename(folder)
            # Only now: if the folder can't be renamed, the next run goes on from the journal and the scratch files.
            (folder / JOURNAL).unlink(missing_ok=True)
            (folder / "lock").unlink(missing_ok=True)
            shutil.rmtree(folder / SCRATCH, ignore_errors=True)
            sync_folder(folder)
            sync_folder(folder.parent)
    except BaseException as error:
        if keep and (unfinished / JOURNAL).is_file():
            error.add_note(f"the next run with the same files goes on from what is done; it is kept in {unfinished}")
        elif not isinstance(error, FileExistsError):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def check_target(folder: Path) -> None:
    """Raise unless a folder is new or empty, and another folder can take its place."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder; remove it, or write to another one")
    wrong = "a symbolic link" if folder.is_symlink() else "a mount point" if folder.is_mount() else None
    if folder.resolve() == Path.cwd():
        wrong = "the working folder"
    if wrong is not None:
        raise FileExistsError(
            f"{folder} is {wrong}, which can't be replaced; write to a folder in it, or to another one"
        )


@contextmanager
def only_this_process(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder; the system releases it however the process ends."""
    if sys.platform == "win32":
        yield
        return
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(f"another process is writing {folder}; wait for it or end it") from error
        yield
