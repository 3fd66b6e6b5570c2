"""Folders for machine code, their permissions, and messages about compilation.

A folder or file is used only if no one but the user, root, and those who can write to the package can write to it.
"""

import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha1
from pathlib import Path

LOGGER = logging.getLogger(__name__)
"""Used instead of `warnings`: no line of the user's code is the cause, and a filter that raises would fail a call."""
SOURCES = Path(__file__).parents[1]
"""Folder of all kernels."""


@cache
def warn_once(message: str) -> None:
    """Log a warning, once per message. It goes to stderr unless the program has configured logging."""
    LOGGER.warning(message)


def user_cache() -> Path:
    given = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    usual = Path("~", "Library", "Caches") if sys.platform == "darwin" else Path("~", ".cache")
    return Path(os.environ.get(given) or os.path.expanduser(usual), "graphfeed")


def candidates() -> Iterator[Path]:
    """Yield folders for the machine code of this copy of the package; preferred ones first."""
    own = f"{SOURCES.name}_{sha1(str(SOURCES).encode(), usedforsecurity=False).hexdigest()}"
    if given := os.environ.get("GRAPHFEED_CACHE_DIR"):
        yield Path(os.path.realpath(given)) / own
    yield Path(os.path.realpath(SOURCES)) / "__pycache__"
    users = user_cache()
    if users.is_absolute():  # the user's home is known
        yield Path(os.path.realpath(users)) / own


def is_trusted(found: os.stat_result) -> bool:
    """Return whether only the user, root, and those who can write to the package can write to a folder or a file."""
    if not hasattr(os, "geteuid"):
        return True
    package = SOURCES.stat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~package.st_mode
    if found.st_gid != package.st_gid:
        writable |= found.st_mode & stat.S_IWGRP
    return not writable and found.st_uid in (os.geteuid(), 0, package.st_uid)


def why_unusable(folder: Path) -> str:
    """Create a folder for machine code if it is missing; return why it is unusable, or an empty string."""
    try:
        folder.parent.mkdir(0o755, parents=True, exist_ok=True)
        folder.mkdir(0o755, exist_ok=True)
        # Links are not followed: another user may have made them.
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
    for place, folder in enumerate(candidates()):
        if writable is not None and not os.path.exists(folder):
            continue  # only folders to write to are created
        reason = why_unusable(folder)
        if not reason:
            readable.append(folder)
            if writable is None and is_writable(folder):
                writable = folder
            elif writable is None:
                reason = "it can't be written to"
        if reason and given and place == 0:
            warn_once(f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {given}: {reason}")
    return tuple(readable), writable
