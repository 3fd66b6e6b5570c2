"""Rows in a file: which are read at once and by which thread, with or without the page cache, and errors."""

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfeed.storage import DiskBasedFeature, TorchBasedFeature
from graphfeed.storage.features import disk_based_feature
from graphfeed.testing import limits
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "feat.npy", ROWS)
    return tmp_path / "feat.npy"


def test_the_file_is_never_written(path: Path) -> None:
    before = path.read_bytes()
    threads = threading.active_count()
    feature = DiskBasedFeature(path)
    feature.read()[0] = 100
    feature.read(torch.tensor([1]))[0] = 100
    assert threading.active_count() == threads, "and few rows need no threads"
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with rows that are equal to their ids."""
    path = tmp_path_factory.mktemp("many") / "feat.npy"
    np.save(path, np.arange(20_000, dtype=np.int64)[:, None] * np.ones((1, 7), np.int64))
    DiskBasedFeature(path).read(torch.arange(1000))  # loads kernels, whose files would count as reads
    return path


def holds_ids(rows: torch.Tensor, ids: torch.Tensor) -> bool:
    """Return whether each row equals its id."""
    return torch.equal(rows, ids.long()[:, None].expand(-1, 7))


def test_many_rows_come_in_the_order_asked_for_with_any_number_of_threads(many: Path) -> None:
    for num_threads, size in product([None, 1, 3], [1, 63, 64, 200, 30_000]):
        feature = DiskBasedFeature(many, num_threads=num_threads)
        for ids in (torch.randint(0, 20_000, (size,)), torch.full((size,), 77)):
            assert holds_ids(feature.read(ids), ids), (num_threads, size)
            (pending,) = feature.read_async(ids)
            assert holds_ids(pending.wait(), ids), (num_threads, size)
        assert holds_ids(feature.read(), torch.arange(20_000)), (num_threads, size)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.tuples(st.integers(0, 19_000), st.integers(1, 400)), max_size=8), seed=st.integers(0, 9))
def test_runs_of_neighbours_come_back_apart(many: Path, runs: list[tuple[int, int]], seed: int) -> None:
    ids = torch.cat([torch.arange(start, start + length) for start, length in runs] + [torch.empty(0).long()])
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    assert holds_ids(DiskBasedFeature(many).read(ids), ids)


def test_rows_in_the_page_cache_are_copied_from_a_mapping(
    many: Path, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(disk_path)
    path = Path("copy.npy")  # a relative one stays that of the folder in which it was opened
    path.write_bytes(many.read_bytes())
    feature, ids = DiskBasedFeature(path, num_threads=3), torch.randperm(20_000).repeat(4)
    monkeypatch.chdir("/")
    assert not feature.is_in_page_cache()
    assert holds_ids(pickle.loads(pickle.dumps(feature)).read(ids[:20_000]), ids[:20_000])
    assert holds_ids(feature.read(ids[:20_000]), ids[:20_000])
    assert feature.is_in_page_cache()
    (disk_path / path).unlink()  # the opened file is mapped, not the current one
    for asked in (ids, ids[:1].int()):
        assert holds_ids(feature.read(asked), asked)
        (pending,) = feature.read_async(asked)
        assert holds_ids(pending.wait(), asked)
    feature.read(ids[:1000])[:] = 0
    assert holds_ids(feature.read(ids[:1000]), ids[:1000])


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


@pytest.mark.slow
def test_what_is_read_counts_as_page_cache_and_not_as_memory(disk_path: Path) -> None:
    path = disk_path / "sparse.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 18, 128)})
        file.truncate(file.tell() + (1 << 27))
    program = """if True:
        import sys, pathlib, torch
        from graphfeed.storage import DiskBasedFeature
        def resident():
            status = pathlib.Path("/proc/self/status").read_text().split()
            return 1024 * int(status[status.index("RssAnon:") + 1])
        feature = DiskBasedFeature(sys.argv[1])
        feature.read(torch.arange(1000))
        before = resident()
        for ids in torch.randperm(1 << 18).split(20_000):
            feature.read(ids)
        print(resident() - before)
    """
    run = subprocess.run([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    assert int(run.stdout) < 1 << 25


def test_a_read_that_takes_too_long_is_named(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = threading.Event()

    def hang(*_: object) -> None:
        ready.wait(60)

    monkeypatch.setattr(disk_based_feature, "read_rows", hang)
    feature = DiskBasedFeature(many)
    (pending,) = feature.read_async(torch.arange(1000))
    with (
        limits(read_seconds=0.01),
        pytest.raises(TimeoutError, match=r"feat.npy took longer than 0 s; is its file system still there"),
    ):
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


def written(path: Path, rows: np.ndarray, change: Callable[[bytes], bytes] = bytes) -> Path:
    """Write a file, and change its bytes."""
    np.save(path, rows)
    path.write_bytes(change(path.read_bytes()))
    return path


def test_files_that_hold_something_else_are_refused(path: Path) -> None:
    def negative(content: bytes) -> bytes:
        return content.replace(b"(", b"(-", 1).replace(b" }", b"}", 1)

    def opened(rows: Any, change: Callable[[bytes], bytes] = bytes) -> DiskBasedFeature:
        return DiskBasedFeature(written(path, rows, change))

    check_refused([
        (lambda: DiskBasedFeature(path.parent / "gone.npy"), FileNotFoundError, r"gone.npy"),
        (lambda: DiskBasedFeature(path, num_threads=0), ValueError, "num_threads must be at least 1, but is 0"),
        (lambda: opened(np.arange(3)), ValueError, r"feat.npy must have 2 dimensions or more, but has 1"),
        (lambda: opened(np.array([[object()]])), ValueError, "object"),
        (lambda: opened(np.asfortranarray(ROWS)), ValueError, r"feat.npy is in Fortran order"),
        (lambda: opened(ROWS.astype(">f4")), ValueError, r"is >f4, which is not this machine's byte order"),
        (lambda: opened(ROWS, lambda content: content[:150]), ValueError, "has 150 bytes, but needs 176 by its header"),
        (lambda: opened(ROWS, negative), ValueError, r"feat.npy is damaged: its shape is \(-\d+, \d+\)"),
        (lambda: opened(ROWS, lambda _: b"something else"), ValueError, "magic"),
    ])  # fmt: skip


def test_it_stays_on_disk_and_says_so(path: Path) -> None:
    feature = DiskBasedFeature(path)
    with pytest.warns(UserWarning, match=r"to\('cuda'\) does nothing: DiskBasedFeature has no rows in memory"):
        assert feature.to("cuda") is feature
    with pytest.warns(UserWarning, match=r"pin_memory_\(\) does nothing: .*; call read_into_memory\(\) first, or copy"):
        feature.pin_memory_()
