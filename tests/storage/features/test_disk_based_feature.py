import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfeed.ops.rows import read_rows
from graphfeed.storage import DiskBasedFeature, TorchBasedFeature
from graphfeed.storage.features import disk_based_feature
from graphfeed.storage.features.disk_rates import USUAL_GAP
from tests.digests import assert_same

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "feat.npy", ROWS)
    return tmp_path / "feat.npy"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_come_from_the_file(path: Path, dtype: torch.dtype) -> None:
    feature = DiskBasedFeature(path, {"unit": "m"})
    assert_same(feature.read(torch.tensor([3, 0, 3], dtype=dtype)), torch.from_numpy(ROWS[[3, 0, 3]]))
    assert_same(feature.read(torch.tensor([], dtype=dtype)), torch.from_numpy(ROWS[:0]))
    assert_same(feature.read(), torch.from_numpy(ROWS))
    assert (feature.size(), feature.count(), feature.metadata()) == (torch.Size([3]), 4, {"unit": "m"})


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "float64"])
def test_every_dtype_is_read(tmp_path: Path, name: str) -> None:
    rows = ROWS.astype(name)
    np.save(tmp_path / "feat.npy", rows)
    assert_same(DiskBasedFeature(tmp_path / "feat.npy").read(torch.tensor([1])), torch.from_numpy(rows[[1]]))


@pytest.mark.parametrize("wrong", [4, -1])
def test_an_id_without_a_row_is_named(path: Path, wrong: int) -> None:
    with pytest.raises(IndexError, match=rf"index must lie in 0 .. 3, but holds {wrong}"):
        DiskBasedFeature(path).read(torch.tensor([wrong]))


def test_the_file_is_never_written(path: Path) -> None:
    before = path.read_bytes()
    feature = DiskBasedFeature(path)
    with pytest.raises(NotImplementedError, match=r"feat.npy is only read; write the new rows to a file"):
        feature.update(torch.ones(4, 3))
    feature.read()[0] = 100
    assert path.read_bytes() == before


def test_it_says_what_rows_are_of_without_reading_any(path: Path) -> None:
    feature = DiskBasedFeature(path)
    assert feature.dtype is feature.read().dtype


def test_it_does_not_claim_to_lie_in_memory(path: Path) -> None:
    assert not DiskBasedFeature(path).may_read_in_threads()


def test_it_pickles_as_its_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    packed = pickle.dumps(DiskBasedFeature("feat.npy", {"unit": "m"}))
    monkeypatch.chdir("/")
    again = pickle.loads(packed)
    assert len(packed) < 1000
    assert_same(again.read(), torch.from_numpy(ROWS))
    assert again.metadata() == {"unit": "m"}


def test_it_prints_where_it_lies(path: Path) -> None:
    assert repr(DiskBasedFeature(path)) == f"DiskBasedFeature({str(path)!r}, float32[4, 3])"


def test_what_is_no_feature_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feat.npy"
    with pytest.raises(FileNotFoundError, match=r"feat.npy"):
        DiskBasedFeature(path)
    np.save(path, np.arange(3))
    with pytest.raises(ValueError, match=r"feat.npy must have 2 dimensions or more, but has 1"):
        DiskBasedFeature(path)
    np.save(path, np.array([[object()]]))
    with pytest.raises(ValueError, match="object"):
        DiskBasedFeature(path)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file whose rows hold their ids."""
    path = tmp_path_factory.mktemp("many") / "feat.npy"
    np.save(path, np.arange(20_000, dtype=np.int64)[:, None] * np.ones((1, 7), np.int64))
    DiskBasedFeature(path).read(torch.arange(1000))  # loads kernels, whose files would count as reads of this one
    return path


def holds_ids(rows: torch.Tensor, ids: torch.Tensor) -> bool:
    """Tell whether each row holds its id."""
    return torch.equal(rows, ids.long()[:, None].expand(-1, 7))


@pytest.mark.parametrize("num_threads", [None, 1, 3])
@pytest.mark.parametrize("size", [1, 63, 64, 200, 30_000])
def test_many_rows_come_in_the_order_asked_for(many: Path, num_threads: int | None, size: int) -> None:
    feature = DiskBasedFeature(many, num_threads=num_threads)
    ids = torch.randint(0, 20_000, (size,))
    assert holds_ids(feature.read(ids), ids)
    assert holds_ids(feature.read(), torch.arange(20_000))
    (pending,) = feature.read_async(ids)
    assert holds_ids(pending.wait(), ids)
    assert pending.wait() is pending.wait()
    assert feature.read_async_num_stages(torch.device("cpu")) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.tuples(st.integers(0, 19_000), st.integers(1, 400)), max_size=8), seed=st.integers(0, 9))
def test_runs_of_neighbours_come_back_apart(many: Path, runs: list[tuple[int, int]], seed: int) -> None:
    ids = torch.cat([torch.arange(start, start + length) for start, length in runs] + [torch.empty(0).long()])
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    assert holds_ids(DiskBasedFeature(many).read(ids), ids)


def test_one_id_may_come_often(many: Path) -> None:
    ids = torch.full((1000,), 77)
    assert holds_ids(DiskBasedFeature(many).read(ids), ids)


def test_rows_near_each_other_are_read_at_once(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps: list[object] = []

    def note(*arguments: Any) -> None:
        gaps.append(arguments[5])
        read_rows(*arguments)

    monkeypatch.setattr(disk_based_feature, "read_rows", note)
    feature, ids = DiskBasedFeature(many, num_threads=2), torch.randperm(20_000)[:200]
    assert holds_ids(feature.read(ids), ids)
    assert holds_ids(feature.read(ids[:5]), ids[:5]), "few rows are read alone"
    assert gaps == [USUAL_GAP, USUAL_GAP, None]


def test_many_threads_may_read_at_once(many: Path) -> None:
    feature = DiskBasedFeature(many, num_threads=2)

    def read(seed: int) -> bool:
        ids = torch.randint(0, 20_000, (500,), generator=torch.Generator().manual_seed(seed))
        pending = [rows for part in ids.reshape(5, 100) for rows in feature.read_async(part)]
        return holds_ids(feature.read(ids), ids) and holds_ids(torch.cat([rows.wait() for rows in pending]), ids)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(64)))


def test_rows_in_the_page_cache_are_copied_from_a_mapping(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "copy.npy"
    path.write_bytes(many.read_bytes())
    feature, ids = DiskBasedFeature(path, num_threads=3), torch.randperm(20_000).repeat(4)
    monkeypatch.setattr(disk_based_feature, "MAPPED_ROWS_PER_TASK", 30_000)
    assert not feature.is_in_page_cache()
    assert holds_ids(feature.read(ids[:20_000]), ids[:20_000])
    assert feature.is_in_page_cache()
    path.unlink()  # the file that was opened is mapped, not what lies there by now
    monkeypatch.setattr(disk_based_feature, "read_rows", None)
    for asked in (ids, ids[:1].int()):
        assert holds_ids(feature.read(asked), asked)
        (pending,) = feature.read_async(asked)
        assert holds_ids(pending.wait(), asked)
    feature.read(ids[:1000])[:] = 0
    assert holds_ids(feature.read(ids[:1000]), ids[:1000])
    assert feature.is_in_page_cache()
    feature._reads.decide(1000, 1000)
    assert not feature.is_in_page_cache()


def test_it_goes_into_memory(path: Path) -> None:
    feature = DiskBasedFeature(path, {"unit": "m"}).read_into_memory()
    assert isinstance(feature, TorchBasedFeature)
    assert_same(feature.read(), torch.from_numpy(ROWS))
    assert feature.metadata() == {"unit": "m"}


def test_threads_and_the_file_go_with_the_feature(many: Path, no_leaks: None) -> None:
    feature = DiskBasedFeature(many, num_threads=4)
    feature.read(torch.arange(1000))
    assert any(thread.name.startswith("graphfeed-disk") for thread in threading.enumerate())
    del feature
    gc.collect()


def test_opening_starts_no_thread(path: Path) -> None:
    before = threading.active_count()
    DiskBasedFeature(path).read(torch.tensor([1]))
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_reads_too(many: Path) -> None:
    feature = DiskBasedFeature(many, num_threads=3)
    ids = torch.arange(1000).flip(0)  # few enough for torch not to start threads, which a fork doesn't have
    assert holds_ids(feature.read(ids), ids)
    child = multiprocessing.get_context("fork").Process(
        target=lambda: sys.exit(0 if holds_ids(feature.read(ids), ids) else 1)
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert holds_ids(feature.read(ids), ids)


@pytest.mark.slow
def test_what_is_read_counts_as_page_cache_and_not_as_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 128)})
        file.truncate(file.tell() + (1 << 29))
    program = """if True:
        import sys, pathlib, torch
        from graphfeed.storage import DiskBasedFeature
        def resident():
            status = pathlib.Path("/proc/self/status").read_text().split()
            return 1024 * int(status[status.index("RssAnon:") + 1])
        feature = DiskBasedFeature(sys.argv[1])
        feature.read(torch.arange(1000))
        before = resident()
        for ids in torch.randperm(1 << 20).split(20_000):
            feature.read(ids)
        print(resident() - before)
    """
    run = subprocess.run([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    assert int(run.stdout) < 1 << 27


def test_a_read_that_takes_too_long_is_named(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = threading.Event()

    def hang(*_: object) -> None:
        ready.wait(60)

    monkeypatch.setattr(disk_based_feature, "read_rows", hang)
    monkeypatch.setattr(disk_based_feature, "READ_TIMEOUT_SECONDS", 0.01)
    feature = DiskBasedFeature(many)
    (pending,) = feature.read_async(torch.arange(1000))
    with pytest.raises(TimeoutError, match=r"feat.npy took longer than 0 s; is its file system still there"):
        pending.wait()
    ready.set()


def test_an_error_of_the_disk_reaches_the_reader(many: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.npy"
    copy.write_bytes(many.read_bytes())
    feature = DiskBasedFeature(copy, num_threads=3)
    feature.read(torch.arange(1000))
    assert feature.is_in_page_cache()
    os.truncate(copy, 5000)
    ends = "the file ends at .*, but .* bytes more are needed from there"
    for ids in (torch.tensor([19_999]), torch.arange(20_000)):
        with pytest.raises(EOFError, match=ends):
            feature.read(ids)
        (pending,) = feature.read_async(ids)
        with pytest.raises(EOFError, match=ends):
            pending.wait()
    with pytest.raises(EOFError, match=ends):
        feature.read()


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "feat.npy"
    np.save(path, np.asfortranarray(ROWS))
    with pytest.raises(ValueError, match=r"feat.npy is in Fortran order"):
        DiskBasedFeature(path)
    np.save(path, ROWS.astype(">f4"))
    with pytest.raises(ValueError, match=r"feat.npy holds >f4, which is not this machine's byte order"):
        DiskBasedFeature(path)
    np.save(path, ROWS)
    os.truncate(path, 150)
    with pytest.raises(ValueError, match=r"feat.npy has 150 bytes, but its header promises 176"):
        DiskBasedFeature(path)
    np.save(path, ROWS)
    path.write_bytes(path.read_bytes().replace(b"(", b"(-", 1).replace(b" }", b"}", 1))
    with pytest.raises(ValueError, match=r"feat.npy is damaged: its shape is \(-\d+, \d+\)"):
        DiskBasedFeature(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="magic"):
        DiskBasedFeature(path)
    with pytest.raises(ValueError, match="num_threads must be at least 1, but is 0"):
        DiskBasedFeature(path, num_threads=0)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (3, 1, 2)], ids=str)
def test_rows_have_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rows = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    np.save(tmp_path / "feat.npy", rows)
    feature = DiskBasedFeature(tmp_path / "feat.npy")
    assert_same(feature.read(), torch.from_numpy(rows))
    ids = torch.arange(shape[0]).flip(0)
    assert_same(feature.read(ids), torch.from_numpy(rows[::-1].copy()))


def test_it_stays_on_disk_and_says_so(path: Path) -> None:
    feature = DiskBasedFeature(path)
    with pytest.warns(UserWarning, match=r"to\('cuda'\) does nothing: DiskBasedFeature has no rows in memory"):
        assert feature.to("cuda") is feature
    with pytest.warns(UserWarning, match=r"pin_memory_\(\) does nothing: .*; call read_into_memory\(\) first, or copy"):
        feature.pin_memory_()


def test_it_is_not_pinned(path: Path) -> None:
    assert not DiskBasedFeature(path).is_pinned()
