"""Encoding a feature of a data set that fails, or is interrupted."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfeed as gf
from graphfeed.storage.datasets.encode import encode_dataset
from tests.kinds.on_disk import write


def stop(*_: Any) -> None:
    raise KeyboardInterrupt("Ctrl-C")


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def features(folder: Path) -> list[dict[str, Any]]:
    """Write the rows of two types, of which the last one has a number without a code."""
    entries = []
    for kind, last in (("a", 1.0), ("b", np.nan)):
        np.save(folder / f"{kind}.npy", np.array([[0.5], [last]], np.float32))
        entries.append({"domain": "node", "type": kind, "name": "x", "format": "numpy", "path": f"{kind}.npy"})
    return entries


@pytest.mark.parametrize(
    ("place", "failing", "kind", "words"),
    [
        (None, None, ValueError, "row 1 of the feature has nan in column 0"),
        ("graphfeed.storage.datasets.encode.write_array", stop, KeyboardInterrupt, "Ctrl-C"),
        ("os.posix_fallocate", full, OSError, r"No space left on device; it takes up to 2 bytes, .*_codes\.npy"),
    ],
)
def test_codes_that_are_not_complete_leave_the_folder_as_it_was(
    place: Any, failing: Any, kind: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "edges.npy", np.zeros((2, 1), np.int64))
    edges = [{"type": "a:r:b", "format": "numpy", "path": "edges.npy"}]
    nodes = [{"type": kind, "num": 2} for kind in "ab"]
    write(
        tmp_path, {"dataset_name": "d", "graph": {"nodes": nodes, "edges": edges}, "feature_data": features(tmp_path)}
    )
    gf.OnDiskDataset(tmp_path).load()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    if place is not None:
        monkeypatch.setattr(place, failing)
    with pytest.raises(kind, match=words):
        encode_dataset(tmp_path, "x", 8)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before
