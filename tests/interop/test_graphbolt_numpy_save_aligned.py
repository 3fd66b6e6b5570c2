import io
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.interop.graphbolt import ALIGNMENT, numpy_save_aligned
from graphfeed.storage import DiskBasedFeature
from tests.digests import assert_same


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float16, np.float64, ">i4", "M8[s]"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (4, 3), (2, 3, 4)])
def test_numpy_reads_it_and_its_values_begin_at_a_page(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    numpy_save_aligned(tmp_path / "array.npy", array)
    again = np.load(tmp_path / "array.npy", allow_pickle=False)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    # NumPy 2.0 can't map nothing.
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r" if array.size else None)
    assert not isinstance(mapped, np.memmap) or mapped.offset == ALIGNMENT
    assert (tmp_path / "array.npy").stat().st_size == ALIGNMENT + array.nbytes


@pytest.mark.parametrize("array", [np.arange(12).reshape(3, 4).T, np.arange(12).reshape(3, 4)[:, ::2]])
def test_arrays_that_lie_otherwise_come_back_equal(array: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
    file = io.BytesIO()
    numpy_save_aligned(file, array)
    file.seek(0)
    assert np.array_equal(np.load(file), array)


def test_a_header_of_any_length_is_padded() -> None:
    kind = np.dtype([(f"column_{number}", np.int32) for number in range(300)])
    file = io.BytesIO()
    numpy_save_aligned(file, np.zeros(2, kind))
    assert (file.tell() - 2 * kind.itemsize) % ALIGNMENT == 0
    file.seek(0)
    assert np.array_equal(np.load(file), np.zeros(2, kind))


def test_a_path_gets_its_ending(tmp_path: Path) -> None:
    numpy_save_aligned(str(tmp_path / "rows.v1"), torch.arange(6.0).reshape(3, 2))
    assert_same(DiskBasedFeature(tmp_path / "rows.v1.npy").read(), torch.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("pickled", [False, True])
def test_objects_are_not_saved(pickled: bool, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"arr holds objects \(object\), which would have to be pickled; save numbers"):
        numpy_save_aligned(tmp_path / "x.npy", np.array([{}]), pickled)
    assert list(tmp_path.iterdir()) == []
