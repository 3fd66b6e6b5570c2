import errno
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, Spec, build_dataset
from graphfeed.ingest.build.growing_arrays import GrowingArrays, Place

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
