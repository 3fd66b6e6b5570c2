import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.storage import DiskBasedFeature
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


def test_it_does_not_claim_to_lie_in_memory(path: Path) -> None:
    assert not DiskBasedFeature(path).lies_in_memory()


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
