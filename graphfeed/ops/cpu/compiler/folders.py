"""The folders where machine code may lie, who else could write to them, and what is said of compiling, each once.

A folder or file is used only if nobody can write to it but its user, root, and those who can write to the package.
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
"""Not `warnings`: no line of the user's is to blame, and a filter that raises would make a call fail."""
SILENT_SECONDS = 2.0
"""How long kernels compile, in all, before that is said."""
RUN_SECONDS = 600.0
"""For how long other processes need not say again that kernels compile: workers and ranks do so at the same time."""


def is_first(folder: Path) -> bool:
    """Tell whether no process that keeps kernels in a folder has lately said that it compiles, and note this one."""
    note, said = folder / "compiling", False
    with suppress(OSError):  # nobody has
        said = time.time() - note.stat().st_mtime < RUN_SECONDS
    with suppress(OSError):  # the disk is full, or there is no such folder
        note.touch()
    return not said


class Notices:
    """What this process has said of compiling, and how long it has waited for it, here or by another process."""

    def __init__(self) -> None:
        self.said: set[str] = set()
        self.spent = 0.0

    def warn_once(self, subject: str, message: str) -> None:
        """Log a warning, which goes to stderr unless the program has set up logging; one per subject."""
        if subject not in self.said:
            self.said.add(subject)
            LOGGER.warning(message)

    @contextmanager
    def timing(self, folder: Path | None) -> Iterator[None]:
        """Add up the time of a block; say so after it, if that makes it long."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - start
            # Between two kernels is soon enough: each takes a second at most.
            if self.spent > SILENT_SECONDS and "compiling" not in self.said:
                where = f"once, and keeps them in {folder}" if folder else "and can't save them"
                if folder is None or is_first(folder):
                    self.warn_once("compiling", f"graphfeed is compiling its kernels for this machine, {where}")
                self.said.add("compiling")


NOTICES = Notices()
SOURCES = Path(__file__).parents[1]
"""The folder of all kernels."""


def real(folder: Path | str) -> Path:
    """Return where a folder lies that users may have linked to another disk; links in a loop are left."""
    return Path(os.path.realpath(folder))


def user_cache() -> Path:
    given = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    usual = Path("~", "Library", "Caches") if sys.platform == "darwin" else Path("~", ".cache")
    return Path(os.environ.get(given) or os.path.expanduser(usual), "graphfeed")


def candidates() -> Iterator[tuple[Path, int]]:
    """Yield the folders for the machine code of this copy of the package, the preferred one first, and their mode."""
    own = f"{SOURCES.name}_{sha1(str(SOURCES).encode(), usedforsecurity=False).hexdigest()}"
    for given in (os.environ.get("GRAPHFEED_CACHE_DIR"), os.environ.get("NUMBA_CACHE_DIR")):
        if given:
            # Links to them are followed here. A folder that is a link after that is not used: in the temporary folder,
            # anybody may make one under the name of the user's folder.
            yield real(given) / own, 0o755
    yield real(SOURCES) / "__pycache__", 0o755
    users = user_cache()
    yield (real(users) if users.is_absolute() else users) / own, 0o755
    with suppress(OSError):  # there is no temporary folder
        user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
        yield Path(tempfile.gettempdir(), f"graphfeed{user}", own), 0o700


def is_trusted(found: os.stat_result) -> bool:
    """Tell whether only the user, root, and those who can write to the package can write to a folder or a file."""
    if not hasattr(os, "geteuid"):
        return True
    package = SOURCES.stat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~package.st_mode
    if found.st_gid != package.st_gid:
        writable |= found.st_mode & stat.S_IWGRP
    return not writable and found.st_uid in (os.geteuid(), 0, package.st_uid)


def why_unusable(folder: Path, mode: int) -> str:
    """Make a folder for machine code, where it is missing; return why it can't be read, or an empty string."""
    if not folder.is_absolute():  # nobody knows the user's home
        return "it is not absolute"
    try:
        folder.parent.mkdir(mode, parents=True, exist_ok=True)
        folder.mkdir(mode, exist_ok=True)
        found = folder.parent.lstat(), folder.lstat()
        if not all(stat.S_ISDIR(part.st_mode) for part in found):
            return "it is no folder"
        if not all(map(is_trusted, found)):
            return "others can write to it"
        os.listdir(folder)
    except (FileExistsError, NotADirectoryError):
        return "it is no folder"
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
    """Return the folders to read machine code from, and the one to write it to: the first that can be written to."""
    readable, given = [], os.environ.get("GRAPHFEED_CACHE_DIR")
    for folder, mode in candidates():
        reason = why_unusable(folder, mode)
        if not reason:
            readable.append(folder)
            if is_writable(folder):
                return tuple(readable), folder
            reason = "it can't be written to"
        if given and folder.parent == real(given):
            NOTICES.warn_once("given", f"compiled kernels are not kept in GRAPHFEED_CACHE_DIR, {given}: {reason}")
    return tuple(readable), None
