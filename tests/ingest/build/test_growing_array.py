import errno
import sys
from pathlib import Path

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, Spec, build_dataset
from graphfeed.ingest.build.growing_array import GrowingArray, GrowingArrays

if sys.platform != "win32":
    import resource


def test_a_file_grows_and_is_complete_when_it_is_closed(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path / "a.npy", np.int32, (2,))
    for start in range(0, 100, 10):
        array.append(np.arange(start, start + 10, dtype=np.int32).reshape(5, 2))
    array.close()
    array.close()
    assert np.load(tmp_path / "a.npy", mmap_mode="r").tolist() == np.arange(100).reshape(50, 2).tolist()


def test_files_are_made_with_their_first_rows_and_replace_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(9))
    with GrowingArrays(tmp_path) as arrays:
        arrays.append("a", np.array([1, 2], dtype=">i8"))
        arrays.append("a", np.array([3]))
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2, 3]


def test_after_an_error_files_are_closed_but_not_completed(tmp_path: Path) -> None:
    arrays = GrowingArrays(tmp_path)
    arrays.append("a", np.array([1, 2]))
    with pytest.raises(ValueError, match="rows are float64"), arrays:
        arrays.append("a", np.array([0.5]))
    assert arrays.arrays["a"].file.closed
    assert np.load(tmp_path / "a.npy").tolist() == []


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
