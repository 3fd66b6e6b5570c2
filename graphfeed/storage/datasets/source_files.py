"""Detects changed files, where possible without reading them."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphfeed.ops.process import regular_file


def digest_of(path: Path) -> str:
    with open(path, "rb", opener=regular_file) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(folder: Path, path: str, digest: bool) -> dict[str, Any]:
    """Return what identifies the current version of a file; for a digest, all of it is read."""
    status = (folder / path).stat()
    # By a path from the folder, which may be moved.
    entry = {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return entry | ({"digest": digest_of(folder / path)} if digest else {})


def find_change(folder: Path, entries: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the path of the first file that differs from its description, or None."""
    for entry in entries:
        path = folder / entry["path"]
        # A file that is gone has not changed: what was made of it stays usable.
        if not path.exists():
            continue
        status = path.stat()
        if status.st_size == entry["size"]:
            if status.st_mtime_ns == entry["mtime_ns"]:
                continue
            # Only the time differs, as after copying: the digest decides where there is one.
            if "digest" in entry and digest_of(path) == entry["digest"]:
                continue
        return str(entry["path"])
    return None
