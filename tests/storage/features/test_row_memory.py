import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.storage import DiskBasedFeature
from graphfeed.storage.features import PlannedRows, RowMemory
from graphfeed.storage.features.planned_rows import bytes_with_slots

KEY, OTHER = ("node", None, "feat"), ("node", "paper", "year")


@pytest.fixture
def features(tmp_path: Path) -> dict[tuple[str, str | None, str], DiskBasedFeature]:
    np.save(tmp_path / "feat.npy", np.arange(60).reshape(20, 3))
    np.save(tmp_path / "year.npy", np.arange(20).reshape(20, 1))
    return {KEY: DiskBasedFeature(tmp_path / "feat.npy"), OTHER: DiskBasedFeature(tmp_path / "year.npy")}


Features = dict[tuple[str, str | None, str], DiskBasedFeature]


def read(rows: PlannedRows, ids: torch.Tensor) -> torch.Tensor:
    """Return the rows of a mini-batch whose ids were noted."""
    rows.expect([ids.cpu()])
    return rows.read(ids)


def test_memory_is_shared_by_the_sizes_of_the_files(features: Features) -> None:
    memory = RowMemory(features, 2000)
    with memory.take() as rows:
        assert rows[KEY].max_size_in_bytes + rows[OTHER].max_size_in_bytes <= 2000
        assert rows[KEY].num_slots == 20
    assert [name for name, _ in memory.list_caches()] == ["node feat", "node paper year"]


def test_rows_stay_for_the_next_epoch(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    for _ in range(2):
        with memory.take() as rows:
            rows[KEY].note([torch.arange(20)])
            rows[KEY].begin()
            rows[KEY].wait()
    assert (rows[KEY].hits, rows[KEY].misses) == (20, 20)


def test_an_epoch_that_is_left_forgets_its_rows(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    taken = memory.take()
    rows = taken.__enter__()
    rows[KEY].note([torch.arange(20)])
    rows[KEY].begin()
    assert not taken.__exit__(KeyError, KeyError(), None)
    with memory.take() as again:
        again[KEY].note([torch.tensor([3])])
        again[KEY].begin()
        again[KEY].wait()
        assert read(again[KEY], torch.tensor([3])).tolist() == [[9, 10, 11]]


def test_two_epochs_at_once_have_memory_of_their_own(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    with memory.take() as one, memory.take() as other:
        assert one[KEY] is not other[KEY]
    with memory.take() as again:
        assert again is one


def test_a_file_that_was_written_to_is_named_when_the_next_epoch_begins(features: Features, tmp_path: Path) -> None:
    memory, path = RowMemory(features, 10_000), tmp_path / "feat.npy"
    with memory.take():
        pass
    # Another file in its place is left alone: the rows are those of the file that was opened.
    os.replace(tmp_path / "year.npy", tmp_path / "old.npy")
    np.save(tmp_path / "year.npy", np.zeros((20, 1)))
    with memory.take() as rows:
        rows[OTHER].note([torch.tensor([7])])
        rows[OTHER].begin()
        rows[OTHER].wait()
        assert read(rows[OTHER], torch.tensor([7])).tolist() == [[7]]
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 2 * 10**9))
    with pytest.raises(RuntimeError, match=r"feat.npy was written to .* 608 bytes .* has 608, .* modified 2 s later"):
        memory.take().__enter__()


def test_what_is_pickled_has_no_rows(features: Features) -> None:
    memory = RowMemory(features, 10_000)
    with memory.take():
        copy = pickle.loads(pickle.dumps(memory))
    assert len(pickle.dumps(memory)) < 1000
    assert repr(copy) == "RowMemory(2 features, 10000 bytes)"
    assert copy.list_caches() == []


def test_memory_without_room_for_a_row_is_told(features: Features) -> None:
    assert not RowMemory(features, 100).has_room()
    assert RowMemory({KEY: features[KEY]}, bytes_with_slots(features[KEY], 1)).has_room()
