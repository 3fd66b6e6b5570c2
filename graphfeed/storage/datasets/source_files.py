"""Whether files have changed, told without reading them where that can be told."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def digest_of(path: Path) -> str:
    """Return a digest of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(folder: Path, path: str, digest: bool) -> dict[str, Any]:
    """Return what tells a file from its later versions; its path is relative, so the folder may move.

    Args:
        folder: The dataset's.
        path: From there.
        digest: Whether to read the file, for a digest of its contents.
    """
    status = (folder / path).stat()
    entry = {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return entry | ({"digest": digest_of(folder / path)} if digest else {})


def find_change(folder: Path, entries: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the first file that is not as it was described, or None.

    Size and time of change are compared. Where only the time differs, as after copying, the digest decides if there is
    one. A file that is gone has not changed.
    """
    for entry in entries:
        path = folder / entry["path"]
        if not path.exists():
            continue
        status = path.stat()
        if status.st_size == entry["size"]:
            if status.st_mtime_ns == entry["mtime_ns"]:
                continue
            if "digest" in entry and digest_of(path) == entry["digest"]:
                continue
        return str(entry["path"])
    return None
