"""A file keeps its stamp as long as nobody writes to it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from graphfeed.storage.memory import has_stamp, new_stamp, stamp_file


def append(path: Path) -> Path:
    with path.open("ab") as file:
        file.write(b"more")
    return path


def touch(path: Path) -> Path:
    path.touch()
    return path


AFTER: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "nothing": (lambda path: path, True),
    "mv": (lambda path: path.rename(path.with_name("moved")), True),
    "cp -p": (lambda path: Path(shutil.copy2(path, path.with_name("copy"))), True),
    "cp": (lambda path: Path(shutil.copyfile(path, path.with_name("copy"))), False),
    "write": (append, False),
    "touch": (touch, False),
}


@pytest.mark.parametrize("how", AFTER)
def test_a_stamp_goes_with_what_is_written(how: str, tmp_path: Path) -> None:
    path, stamp = tmp_path / "file", new_stamp()
    path.write_bytes(b"what was checked")
    assert not has_stamp(path, stamp)
    stamp_file(path, stamp)
    change, keeps = AFTER[how]
    assert has_stamp(change(path), stamp) == keeps


@pytest.mark.parametrize("stamp", [None, True, "1", 2.0, 2**80, -(2**80)])
def test_what_metadata_may_hold_instead_is_no_stamp(stamp: object, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (1, 1))
    assert not has_stamp(tmp_path / "file", stamp)
