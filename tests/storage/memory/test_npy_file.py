import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.memory import buffers
from graphfeed.storage import TorchBasedFeatureStore
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from graphfeed.storage.memory.mapped_file import FilePlace, find_places
from graphfeed.storage.memory.memory_limits import memory_limit
from graphfeed.storage.memory.npy_file import map_npy, read_npy
from graphfeed.storage.memory.shared import find_handle

pytestmark = pytest.mark.usefixtures("small_is_shared")


@pytest.mark.parametrize("dtype", ["int64", ">i4", "float16", "complex64", "bool"])
@pytest.mark.parametrize("shape", [(), (7,), (0, 3), (5, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_as_numpy_reads_it(tmp_path: Path, dtype: Any, shape: tuple[int, ...], order: Any) -> None:
    array = np.zeros(shape, dtype=dtype, order=order)
    array.reshape(-1, order=order).view(np.uint8)[:] = 1
    np.save(tmp_path / "array.npy", array)
    found, expected = read_npy(tmp_path / "array.npy"), np.load(tmp_path / "array.npy")
    assert found.dtype == expected.dtype
    assert found.strides == expected.strides
    assert np.array_equal(found, expected)
    assert found.flags.writeable


@pytest.mark.parametrize("read", [read_npy, map_npy])
def test_no_two_threads_parse_headers_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any]
) -> None:
    """They may fail then, before Python 3.11.8."""
    np.save(tmp_path / "a.npy", np.arange(3))
    load, parsing, found = np.lib.format.open_memmap, threading.Semaphore(1), []

    def load_slowly(*args: Any, **options: Any) -> Any:
        found.append(parsing.acquire(blocking=False))
        time.sleep(0.005)
        parsing.release()
        return load(*args, **options)

    monkeypatch.setattr(np.lib.format, "open_memmap", load_slowly)
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(lambda _: read(tmp_path / "a.npy"), range(8)))
    assert all(np.array_equal(array, np.arange(3)) for array in arrays)
    assert found == [True] * 8


def test_a_file_larger_than_the_memory_is_mapped(tmp_path: Path) -> None:
    rows = int(2 * memory_limit()) // 8
    with (tmp_path / "rows.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (rows,)})
        file.truncate(file.tell() + 8 * rows)  # a hole: it takes no room on the disk
    mapped = torch.from_numpy(read_npy(tmp_path / "rows.npy", mapped=True))
    (place,) = find_places([mapped])
    assert isinstance(place, FilePlace)
    again = place.open()  # as a worker does
    mapped[-1], again[0] = 5, 7
    assert mapped[[0, -1]].tolist() == [0, 5]
    assert again[[0, -1]].tolist() == [7, 0]


def test_features_in_memory_can_be_mapped_by_others(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12.0).reshape(4, 3))
    for in_memory in (True, False):
        spec = OnDiskFeatureData("node", "feat", "numpy", tmp_path / "rows.npy", None, in_memory)
        feature: Any = TorchBasedFeatureStore([spec])["node", None, "feat"]
        rows = feature.read() if in_memory else feature.read_into_memory().read()
        assert find_handle(rows) is not None
        assert torch.equal(rows, torch.arange(12.0, dtype=torch.float64).reshape(4, 3))


def test_files_that_hold_something_else_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", np.arange(3))
    np.save(tmp_path / "short.npy", np.arange(1000))
    for name, reason in (("objects.npy", "Python objects"), ("several.npz", "magic string")):
        with pytest.raises(ValueError, match=rf"{name} can't be read .*{reason}"):
            read_npy(tmp_path / name)
    make = buffers.empty_long_lived

    def cut_off(*args: Any) -> torch.Tensor:
        (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-1])
        return make(*args)

    monkeypatch.setattr(buffers, "empty_long_lived", cut_off)
    with pytest.raises(ValueError, match=r"short\.npy was cut off meanwhile"):
        read_npy(tmp_path / "short.npy")
