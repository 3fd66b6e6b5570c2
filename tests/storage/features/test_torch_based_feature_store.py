from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.backend import PACKAGES
from graphfeed.storage import DiskBasedFeature, OnDiskFeatureData, TorchBasedFeature, TorchBasedFeatureStore
from tests.digests import assert_same
from tests.ops.locked_memory import LockedMemory

ROWS = torch.arange(6.0).reshape(3, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    torch.save(ROWS, tmp_path / "rows.pt")
    return tmp_path


def test_each_file_becomes_a_feature_where_it_should_lie(folder: Path) -> None:
    store = TorchBasedFeatureStore(
        [
            OnDiskFeatureData("node", "a", "torch", folder / "rows.pt", "paper"),
            OnDiskFeatureData("node", "b", "numpy", str(folder / "rows.npy"), "paper"),
            OnDiskFeatureData("edge", "c", "numpy", folder / "rows.npy", in_memory=False, extra_fields={"unit": "m"}),
        ]
    )
    assert list(store.keys()) == [("node", "paper", "a"), ("node", "paper", "b"), ("edge", None, "c")]
    kinds = [type(store[key]) for key in store.keys()]  # noqa: SIM118
    assert kinds == [TorchBasedFeature, TorchBasedFeature, DiskBasedFeature]
    for domain, kind, name in store.keys():  # noqa: SIM118
        assert_same(store.read(domain, kind, name, torch.tensor([2, 0])), ROWS[[2, 0]])
    assert store.metadata("edge", None, "c") == {"unit": "m"}
    assert store.metadata("node", "paper", "a") == {}


def test_what_cannot_be_opened_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"rows.pt: format torch must be in memory; save it with numpy.save"):
        TorchBasedFeatureStore([OnDiskFeatureData("node", "a", "torch", folder / "rows.pt", in_memory=False)])
    other: Any = "csv"
    with pytest.raises(ValueError, match=r"rows.pt: format must be 'torch' or 'numpy', but is 'csv'"):
        TorchBasedFeatureStore([OnDiskFeatureData("node", "a", other, folder / "rows.pt")])


def test_nothing_is_unpickled_but_tensors(folder: Path) -> None:
    torch.save(Path("/"), folder / "evil.pt")
    np.save(folder / "evil.npy", np.array([[Path("/")]]))
    with pytest.raises(ValueError, match="without unpickling objects"):
        TorchBasedFeatureStore([OnDiskFeatureData("node", "a", "torch", folder / "evil.pt")])
    with pytest.raises(ValueError, match="Python objects"):
        TorchBasedFeatureStore([OnDiskFeatureData("node", "a", "numpy", folder / "evil.npy")])


def test_a_store_with_a_file_in_it_is_not_pinned(folder: Path) -> None:
    disk = OnDiskFeatureData("edge", "c", "numpy", folder / "rows.npy", in_memory=False)
    assert not TorchBasedFeatureStore([disk]).is_pinned()


def test_what_may_read_in_threads_moves_and_what_is_on_disk_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TorchBasedFeatureStore(
        [
            OnDiskFeatureData("node", "a", "torch", folder / "rows.pt"),
            OnDiskFeatureData("node", "b", "numpy", folder / "rows.npy", in_memory=False),
        ]
    )
    monkeypatch.setitem(PACKAGES, "meta", "cuda")  # lets it pass for a GPU
    with pytest.warns(UserWarning, match="DiskBasedFeature has no rows in memory"):
        moved = store.to("meta")
    assert type(moved) is TorchBasedFeatureStore
    assert moved.read("node", None, "a").device.type == "meta"
    assert moved["node", None, "b"] is store["node", None, "b"]
    assert_same(store.read("node", None, "a"), ROWS)


def test_what_may_read_in_threads_is_pinned(folder: Path) -> None:
    store = TorchBasedFeatureStore([OnDiskFeatureData("node", "a", "torch", folder / "rows.pt")])
    with LockedMemory().installed() as memory:
        store.pin_memory_()
        assert memory.holds_all(store.read("node", None, "a"))
