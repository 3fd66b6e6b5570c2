"""Rows that are read ahead of mini-batches, in windows, into memory that is kept for the next epoch."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfeed.storage import DiskBasedFeature
from graphfeed.storage.features import PlannedRows, RowMemory
from tests.stand_ins.emulated_cuda import Cuda

ROWS = torch.arange(900, dtype=torch.int32).reshape(300, 3)
WINDOWS = st.lists(st.lists(st.lists(st.integers(0, 299), max_size=40), max_size=3), max_size=5)


@pytest.fixture
def feature(tmp_path: Path) -> DiskBasedFeature:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    return DiskBasedFeature(tmp_path / "feat.npy")


def read(rows: PlannedRows, ids: torch.Tensor) -> torch.Tensor:
    """Return the rows of a mini-batch whose ids were added."""
    rows.expect([ids.cpu()])
    return rows.read(ids)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(windows=WINDOWS, size=st.integers(1620, 15_000))
def test_rows_are_those_of_the_file_whatever_there_is_memory_for(
    feature: DiskBasedFeature, windows: list[list[list[int]]], size: int
) -> None:
    rows = PlannedRows(feature, size)
    assert rows.max_size_in_bytes <= size
    before: list[torch.Tensor] = []
    for window in windows:
        minibatches = [torch.tensor(ids, dtype=torch.int64) for ids in window]
        for ids in minibatches:
            rows.add_minibatch([ids])
        rows.start_window_read()
        # While this window is being read, the mini-batches of the previous one are used.
        for ids in before:
            assert torch.equal(read(rows, ids), ROWS[ids])
            rows.mark_used()
        rows.wait()
        before = minibatches
    assert all(torch.equal(read(rows, ids), ROWS[ids]) for ids in before)


def test_rows_go_to_a_gpu(feature: DiskBasedFeature, cuda: Cuda) -> None:
    ids = torch.tensor([4, 1, 9, 1, 7, 8])
    rows = PlannedRows(feature, 1650)
    rows.add_minibatch([ids])
    rows.start_window_read()
    rows.wait()
    with cuda.running():
        found = read(rows, cuda.put(ids))
        assert cuda.is_there(found)
        assert torch.equal(found.cpu(), ROWS[ids])


def test_memory_without_space_for_a_row_is_refused(feature: DiskBasedFeature) -> None:
    with pytest.raises(
        ValueError, match="max_size_in_bytes is 100, but a row and the bookkeeping for 300 rows take 1620"
    ):
        PlannedRows(feature, 100)


def test_a_file_that_became_shorter_is_an_error(feature: DiskBasedFeature, tmp_path: Path) -> None:
    rows = PlannedRows(feature, 1 << 20)
    os.truncate(tmp_path / "feat.npy", 1000)
    rows.add_minibatch([torch.tensor([2, 299])])
    rows.start_window_read()
    with pytest.raises(EOFError, match="the file ends at 1000, but"):
        rows.wait()


def test_rows_that_were_not_noted_come_from_the_file(feature: DiskBasedFeature) -> None:
    rows = PlannedRows(feature, 1 << 20)
    rows.add_minibatch([torch.arange(4)])
    rows.start_window_read()
    rows.wait()
    rows.add_minibatch([torch.arange(20, 24)])
    rows.start_window_read()
    rows.expect([torch.arange(4)])
    assert torch.equal(rows.read(torch.tensor([22, 1, 80])), ROWS[[22, 1, 80]])
    assert torch.equal(rows.read(torch.arange(4)), ROWS[:4])


KEY, OTHER = ("node", None, "feat"), ("node", "paper", "year")


@pytest.fixture
def features(tmp_path: Path) -> dict[tuple[str, str | None, str], DiskBasedFeature]:
    np.save(tmp_path / "feat.npy", np.arange(60).reshape(20, 3))
    np.save(tmp_path / "year.npy", np.arange(20).reshape(20, 1))
    return {KEY: DiskBasedFeature(tmp_path / "feat.npy"), OTHER: DiskBasedFeature(tmp_path / "year.npy")}


Features = dict[tuple[str, str | None, str], DiskBasedFeature]


def test_rows_stay_for_the_next_epoch(features: Features, tmp_path: Path) -> None:
    memory, ids = RowMemory(features, 10_000), torch.arange(20)
    for _ in range(2):
        with memory.acquire() as rows:
            rows[KEY].add_minibatch([ids])
            rows[KEY].start_window_read()
            rows[KEY].wait()
            assert read(rows[KEY], ids).tolist() == torch.arange(60).reshape(20, 3).tolist()
        found = (tmp_path / "feat.npy").stat()
        with (tmp_path / "feat.npy").open("r+b") as file:  # it is not read again
            file.seek(-480, os.SEEK_END)
            file.write(bytes(480))
        os.utime(tmp_path / "feat.npy", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert [name for name, _ in memory.list_caches()] == ["node feat", "node paper year"]


def test_an_epoch_that_is_left_forgets_its_rows(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    taken = memory.acquire()
    rows = taken.__enter__()
    rows[KEY].add_minibatch([torch.arange(20)])
    rows[KEY].start_window_read()
    assert not taken.__exit__(KeyError, KeyError(), None)
    with memory.acquire() as again:
        again[KEY].add_minibatch([torch.tensor([3])])
        again[KEY].start_window_read()
        again[KEY].wait()
        assert read(again[KEY], torch.tensor([3])).tolist() == [[9, 10, 11]]


def test_two_epochs_at_once_have_memory_of_their_own(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    with memory.acquire() as one, memory.acquire() as other:
        first = one[KEY]
        assert first is not other[KEY]
    with memory.acquire() as again:
        assert again[KEY] is first


def test_a_file_that_was_written_to_is_named_when_the_next_epoch_begins(features: Features, tmp_path: Path) -> None:
    memory, path = RowMemory(features, 10_000), tmp_path / "feat.npy"
    with memory.acquire():
        pass
    # A file that replaces it is ignored: the rows are those of the opened file.
    os.replace(tmp_path / "year.npy", tmp_path / "old.npy")
    np.save(tmp_path / "year.npy", np.zeros((20, 1)))
    with memory.acquire() as rows:
        rows[OTHER].add_minibatch([torch.tensor([7])])
        rows[OTHER].start_window_read()
        rows[OTHER].wait()
        assert read(rows[OTHER], torch.tensor([7])).tolist() == [[7]]
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 2 * 10**9))
    with pytest.raises(RuntimeError, match=r"feat.npy was written to .* 608 bytes .* has 608, .* modified 2 s later"):
        memory.acquire().__enter__()
