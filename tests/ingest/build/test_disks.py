"""Disks that are too small, and files that grow."""

import errno
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build.disk_space import GB, check_free_space
from graphfeed.ingest.build.growing_arrays import GrowingArrays, Place
from tests.ingest.example_tables import likes
from tests.on_disk import listing


def test_a_disk_that_is_too_small_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = likes(tmp_path)
    before = listing(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(OSError, match=r"the data set takes 0\.0 GB at least while it is made, and 0\.0 GB are free"):
        build_dataset(spec, tmp_path / "out")
    assert listing(tmp_path) == before


def test_what_an_earlier_run_has_written_counts_as_free(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * GB))
    with (disk_path / "scratch.npy").open("wb") as file:
        file.truncate(GB)
    check_free_space(disk_path, 4 * GB)
    with pytest.raises(OSError, match=r"takes 4\.1 GB at least while it is made, and 4\.0 GB are free"):
        check_free_space(disk_path, 4 * GB + GB // 10)


if sys.platform != "win32":
    import resource


def test_rows_are_put_into_their_places_side_by_side(tmp_path: Path) -> None:
    np.save(tmp_path / "n_a.npy", np.zeros((9, 9)))  # of a run before
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder, first in zip(folders, (3, 0), strict=True):
        folder.mkdir()
        with GrowingArrays(folder) as arrays:
            place = Place(tmp_path / "n", 5, first)
            for row in range(first, first + (2 if first else 3)):
                arrays.append("a", np.array([[row, row]]), place)
        assert list(folder.iterdir()) == []
    assert np.load(tmp_path / "n_a.npy").tolist() == [[row, row] for row in range(5)]
    folders[0].rmdir()
    with pytest.raises(FileNotFoundError, match="0 is gone: another run writes"), GrowingArrays(folders[0]) as arrays:
        arrays.append("a", np.array([[7, 7]]), Place(tmp_path / "n", 3))
    assert np.load(tmp_path / "n_a.npy").tolist() == [[row, row] for row in range(5)]


def test_after_an_error_files_are_closed_but_not_completed(tmp_path: Path) -> None:
    arrays = GrowingArrays(tmp_path)
    arrays.append("a", np.array([1, 2]))
    with pytest.raises(ValueError, match="rows are float64"), arrays:
        arrays.append("a", np.array([0.5]))
    assert np.load(tmp_path / "a.npy").tolist() == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits of files")
def test_why_not_all_could_be_written_is_said_with_the_folder(tmp_path: Path) -> None:
    """A limit of the size of files stands for a full disk."""
    rows = np.arange(1 << 16)
    spec = Spec({"e": EdgeTable({"source": rows, "destination": rows}, features={"x": "source"})})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large; .*out") as caught:
            build_dataset(spec, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert build_dataset(spec, tmp_path / "out").load().graph is not None


def test_the_least_is_that_of_edges_and_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has a byte less is too small, and one that has as many is large enough to begin with."""
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    columns = {
        "x": pa.array([0.5, 1.5] * 2),
        "n": pa.array([1, 2] * 2, pa.int16()),
        "v": pa.array([[1.5, 2.5, 3.5]] * 4),
    }
    features: dict[str, Any] = {"b": ["x", "n"], "c": "v"}
    ends = {"source": np.arange(4), "destination": np.arange(4), "w": np.arange(4)}
    of_edges, of_nodes = 4 * (12 + 2 * 4), 4 * (4 + 2 + 3 * 4)
    edges = {"n:r:n": EdgeTable(ends, weight="w")}
    spec = Spec(edges, {"n": NodeTable(pa.table(columns), features=features)}, folder=tmp_path)
    arrays = Spec(edges, {"n": NodeTable(features={"a": "a.npy"})}, folder=tmp_path)
    halves = NodeTable([pa.table(columns).slice(0, 2), pa.table(columns).slice(2)], features=features)
    skipping = Spec(edges, {"n": halves}, folder=tmp_path)  # rows that may be left out are written twice
    cases: list[tuple[Spec, int, Any]] = [
        (spec, of_edges + of_nodes, "raise"),
        (arrays, of_edges + 5 * 2 * 4, "raise"),
        (skipping, of_edges + 2 * of_nodes, "skip"),
    ]
    for given, least, on_error in cases:
        monkeypatch.setattr(shutil, "disk_usage", lambda _, least=least: SimpleNamespace(free=least - 1))
        with pytest.raises(OSError, match="at least while it is made"):
            build_dataset(given, tmp_path / "out", on_error=on_error)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, least=least: SimpleNamespace(free=least))
        build_dataset(given, tmp_path / str(least), on_error=on_error)
