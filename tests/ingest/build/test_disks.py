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
from graphfeed.ingest.build.disk_space import GB, check_free_space, least_bytes
from graphfeed.ingest.build.growing_arrays import GrowingArrays, Place
from graphfeed.ingest.build.spec import Table
from graphfeed.ingest.tables.table import find_sources
from tests.ingest.example_tables import likes
from tests.on_disk import listing


def test_a_disk_that_is_too_small_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = likes(tmp_path)
    before = listing(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(OSError, match=r"the data set takes 0\.0 GB at least while it is made, and 0\.0 GB are free"):
        build_dataset(spec, tmp_path / "out")
    assert listing(tmp_path) == before


def test_what_an_earlier_run_has_written_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * GB))
    with (tmp_path / "scratch.npy").open("wb") as file:
        file.truncate(GB)
    check_free_space(tmp_path, 4 * GB)
    with pytest.raises(OSError, match=r"takes 4\.1 GB at least while it is made, and 4\.0 GB are free"):
        check_free_space(tmp_path, 4 * GB + GB // 10)


def test_the_least_is_that_of_edges_and_features(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    columns = {"x": pa.array([0.5, 1.5]), "n": pa.array([1, 2], pa.int16()), "v": pa.array([[1.5, 2.5, 3.5]] * 2)}
    nodes = NodeTable(pa.table(columns), features={"a": "a.npy", "b": ["x", "n"], "c": "v"})
    edges = EdgeTable({"source": np.arange(7), "destination": np.arange(7), "w": np.arange(7)}, weight="w")
    (tmp_path / "e.csv").write_text("source,destination,w\n1,2,3\n")
    tables: dict[str, dict[str | None, Table]] = {"nodes": {"n": nodes}, "edges": {"n:r:n": edges}}
    sources = {
        (key, name): find_sources(table.files, tmp_path, header=True, pairs=False)
        for key, entries in tables.items()
        for name, table in entries.items()
    }
    sources["edges", "n:r:n"] += find_sources(["e.csv"], tmp_path, header=True, pairs=False)
    of_edges, of_features = 7 * (12 + 2 * 4), 5 * 2 * 4 + 2 * (4 + 2 + 3 * 4)
    assert least_bytes(sources, tables, tmp_path) == of_edges + of_features
    sources["nodes", "n"] += find_sources([pa.table(columns).slice(0, 0)], tmp_path, header=True, pairs=False)
    assert least_bytes(sources, tables, tmp_path, "skip") == of_edges + 2 * of_features


if sys.platform != "win32":
    import resource


def test_files_grow_and_are_complete_when_they_are_closed(tmp_path: Path) -> None:
    with GrowingArrays(tmp_path) as arrays:
        for start in range(0, 100, 10):
            arrays.append("a", np.arange(start, start + 10, dtype=np.int32).reshape(5, 2))
    assert np.load(tmp_path / "a.npy", mmap_mode="r").tolist() == np.arange(100).reshape(50, 2).tolist()


def test_files_are_made_with_their_first_rows_and_replace_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(9))
    with GrowingArrays(tmp_path) as arrays:
        arrays.append("a", np.array([1, 2], dtype=">i8"))
        arrays.append("a", np.array([3]))
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2, 3]


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
    assert arrays.arrays["a"].file.closed
    assert np.load(tmp_path / "a.npy").tolist() == []


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        (np.zeros(1, np.int64), np.array([0.5]), r"a: rows are float64 of shape \(\), but the first ones int64"),
        (np.zeros(1, np.int64), np.zeros((1, 2), np.int64), r"rows are int64 of shape \(2,\)"),
        (np.zeros(1, np.int8), np.array([300]), r"a: rows are int64 of shape \(\), but the first ones int8"),
    ],
)
def test_rows_that_the_first_ones_do_not_hold_are_refused(tmp_path: Path, first: Any, other: Any, message: str) -> None:
    with GrowingArrays(tmp_path) as arrays:
        arrays.append("a", first)
        with pytest.raises(ValueError, match=message):
            arrays.append("a", other)


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
