from pathlib import Path

import numpy as np
import pytest

from graphfeed.ingest.build.growing_array import GrowingArray, GrowingArrays


def test_a_file_grows_and_is_complete_when_it_is_closed(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path / "a.npy", np.int32, (2,))
    for start in range(0, 100, 10):
        array.append(np.arange(start, start + 10, dtype=np.int32).reshape(5, 2))
    array.close()
    array.close()
    assert np.load(tmp_path / "a.npy", mmap_mode="r").tolist() == np.arange(100).reshape(50, 2).tolist()


def test_one_goes_on_behind_the_rows_that_were_noted(tmp_path: Path) -> None:
    arrays = GrowingArrays(tmp_path)
    arrays.append("a", np.array([1, 2]))
    state = arrays.sync()
    arrays.append("a", np.array([9, 9, 9]))
    arrays.abandon()
    again = GrowingArrays(tmp_path, state)
    again.append("a", np.array([3]))
    again.close()
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2, 3]


def test_rows_that_are_missing_are_noticed(tmp_path: Path) -> None:
    GrowingArray(tmp_path / "a.npy", np.int64).close()
    with pytest.raises(ValueError, match=r"a\.npy should have 3 rows, but is shorter"):
        GrowingArrays(tmp_path, {"a": {"dtype": "<i8", "row": [], "rows": 3}})


def test_other_rows_are_refused(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path / "a.npy", np.int64)
    with pytest.raises(ValueError, match=r"rows are float64 of shape \(\), but the first ones int64"):
        array.append(np.array([0.5]))
    with pytest.raises(ValueError, match=r"rows are int64 of shape \(2,\)"):
        array.append(np.zeros((1, 2), dtype=np.int64))
    array.close()


def test_rows_that_would_wrap_around_are_refused(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path / "a.npy", np.int8)
    with pytest.raises(ValueError, match=r"a: rows are int64 of shape \(\), but the first ones int8"):
        array.append(np.array([300]))
    array.close()
