"""Files with flipped bits, cut ends and other bytes give errors that say so, and end no process."""

import os
import re
from pathlib import Path

import pytest

from tests.ingest.damage import KINDS
from tests.scripts import run

MUTATIONS = int(os.environ.get("GRAPHFEED_MUTATIONS", "60"))
"""How often files of each kind are damaged: 1,000 take a minute."""


def attack(kind: str, first: int, count: int, folder: Path, seconds: float) -> dict[str, int]:
    """Damage so many files in a process of its own; return what came of it, with the numbers that ended the process."""
    done = run("-m", "tests.ingest.damage", kind, str(first), str(count), str(folder / "files"), seconds=seconds)
    last = re.findall(r"^\d+$", done.stdout, re.MULTILINE)[-1:]
    assert done.returncode == 0, f"{kind} {last}: {done.returncode} {done.stderr[-2000:]}"
    found = {name: int(times) for times, name in re.findall(r"^= (\d+) (.*)$", done.stdout, re.MULTILINE)}
    assert sum(found.values()) == count
    assert [name for name in found if name.startswith("poor error")] == []
    return found


def check(kind: str, found: dict[str, int], count: int) -> None:
    """Raise unless most damage is noticed; all of it where there are checksums."""
    assert found.get("error", 0) > count // 10
    if "tfrecord" in kind:
        # A file that ends between two records is whole.
        assert found.get("other", 0) <= count // 50
    if kind == "parquet":
        # What pages hold has checksums. The footer has none: a flipped bit there may name another column.
        assert found.get("other", 0) <= count // 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_errors(kind: str, tmp_path: Path) -> None:
    check(kind, attack(kind, 0, MUTATIONS, tmp_path, 100 + MUTATIONS), MUTATIONS)
