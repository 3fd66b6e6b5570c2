"""Folders for machine code, their permissions, and messages about compilation.

A folder or file is used only if no one but the user, root, and those who can write to the package can write to it.
"""

import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha1
from pathlib import Path

LOGGER = logging.getLogger(__name__)
"""Used instead of `warnings`: no line of the user's code is the cause, and a filter that raises would fail a call."""
SILENT_SECONDS = 2.0
"""Total compile time after which a message is logged."""
RUN_SECONDS = 600.0
"""Time for which other processes don't repeat that message: workers and ranks compile at the same time."""


def is_first(folder: Path) -> bool:
    """Return whether no other process that uses a folder has recently logged that it compiles; record this one."""
    note, said = folder / "compiling", False
    with suppress(OSError):  # no process has
        said = time.time() - note.stat().st_mtime < RUN_SECONDS
    with suppress(OSError):  # the disk is full, or there is no such folder
        note.touch()
    return not said


class Notices:
    """Messages that this process has logged, and the time that it has waited for kernels, its own or another's."""

    def __init__(self) -> None:
        self.said: set[str] = set()
        self.spent = 0.0

    def warn_once(self, subject: str, message: str) -> None:
        """Log a warning, once per subject. It goes to stderr unless the program has configured logging."""
        if subject not in self.said:
            self.said.add(subject)
            LOGGER.warning(message)

    @contextmanager
    def timing(self, folder: Path | None) -> Iterator[None]:
        """Add the time of a `with` block to the total; log a message afterwards if the total is too long."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - start
            # Checked only between kernels, which take a second at most.
            if self.spent > SILENT_SECONDS and "compiling" not in self.said:
                where = f"once, and keeps them in {folder}" if folder else "and can't save them"
                if folder is None or is_first(folder):
                    self.warn_once("compiling", f"graphfeed is compiling its kernels for this machine, {where}")
                self.said.add("compiling")


NOTICES = Notices()
SOURCES = Path(__file__).parents[1]
"""Folder of all kernels."""


def real(folder: Path | str) -> Path:
    """Resolve the links of a folder, which may be linked to another disk; loops of links are left unresolved."""
    return Path(os.path.realpath(folder))


def user_cache() -> Path:
    given = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    usual = Path("~", "Library", "Caches") if sys.platform == "darwin" else Path("~", ".cache")
    return Path(os.environ.get(given) or os.path.expanduser(usual), "graphfeed")


def for_user(folder: Path) -> Path:
    """Return the folder that only this user can write to, in a folder where others can also create files."""
    return folder / (f"graphfeed-{os.getuid()}" if hasattr(os, "getuid") else "graphfeed")


def candidates() -> Iterator[tuple[Path, int]]:
    """Yield folders for the machine code of this copy of the package, with their modes; preferred ones first."""
    own = f"{SOURCES.name}_{sha1(str(SOURCES).encode(), usedforsecurity=False).hexdigest()}"
    for given in (os.environ.get("GRAPHFEED_CACHE_DIR"), os.environ.get("NUMBA_CACHE_DIR")):
        if given:
            # Links are followed here only. A folder that is still a link is not used: in a folder that others can write
            # to, any user could create a link with the name of this user's folder.
            folder = real(given)
            is_shared = False
            with suppress(OSError):  # it does not exist yet
                is_shared = not is_trusted(folder.stat())
            yield (for_user(folder) / own, 0o700) if is_shared else (folder / own, 0o755)
    yield real(SOURCES) / "__pycache__", 0o755
    users = user_cache()
    yield (real(users) if users.is_absolute() else users) / own, 0o755
    with suppress(OSError):  # there is no temporary folder
        yield for_user(Path(tempfile.gettempdir())) / own, 0o700


def is_trusted(found: os.stat_result) -> bool:
    """Return whether only the user, root, and those who can write to the package can write to a folder or a file."""
    if not hasattr(os, "geteuid"):
        return True
    package = SOURCES.stat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~package.st_mode
    if found.st_gid != package.st_gid:
        writable |= found.st_mode & stat.S_IWGRP
    return not writable and found.st_uid in (os.geteuid(), 0, package.st_uid)


def why_unusable(folder: Path, mode: int) -> str:
    """Create a folder for machine code if it is missing; return why it is unusable, or an empty string."""
    if not folder.is_absolute():  # the user's home is unknown
        return "it is not absolute"
    try:
        folder.parent.mkdir(mode, parents=True, exist_ok=True)
        folder.mkdir(mode, exist_ok=True)
        found = folder.parent.lstat(), folder.lstat()
        if not all(stat.S_ISDIR(part.st_mode) for part in found):
            return "it is not a folder"
        if not all(map(is_trusted, found)):
            return "other users can write to it"
        os.listdir(folder)
    except (FileExistsError, NotADirectoryError):
        return "it is not a folder"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_writable(folder: Path) -> bool:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@cache
def folders() -> tuple[tuple[Path, ...], Path | None]:
    """Return the folders to read machine code from, and the first writable one, or None, to write it to."""
    readable, writable, given = [], None, os.environ.get("GRAPHFEED_CACHE_DIR")
    for place, (folder, mode) in enumerate(candidates()):
        if writable is not None and not os.path.exists(folder):
            continue  # only folders to write to are created
        reason = why_unusable(folder, mode)
        if not reason:
            readable.append(folder)
            if writable is None and is_writable(folder):
                writable = folder
            elif writable is None:
                reason = "it can't be written to"
        if reason and given and place == 0:
            NOTICES.warn_once("given", f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {given}: {reason}")
    return tuple(readable), writable
