"""Features take what people have, and say what would be lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from tests.array_likes import AS
from tests.digests import assert_same
from tests.ops.locked_memory import LockedMemory

ROWS = torch.arange(12.0).reshape(4, 3)
IDS = torch.tensor([3, 0, 3])

each_kind = pytest.mark.parametrize("convert", AS.values(), ids=AS.keys())


@each_kind
def test_rows_ids_and_new_rows_may_be_array_likes(convert: Callable[[torch.Tensor], Any]) -> None:
    feature = gf.TorchBasedFeature(convert(ROWS.clone()))
    assert_same(feature.read(), ROWS)
    assert_same(feature.read(convert(IDS)), ROWS[IDS])
    feature.update(convert(-ROWS[:2]), convert(torch.tensor([2, 1])))
    assert_same(feature.read(torch.arange(4)), torch.stack([ROWS[0], -ROWS[1], -ROWS[0], ROWS[3]]))
    feature.update(convert(-ROWS))
    assert_same(feature.read(), -ROWS)


@each_kind
def test_a_file_and_a_cache_take_ids_as_array_likes(convert: Callable[[torch.Tensor], Any], tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    disk = gf.DiskBasedFeature(tmp_path / "feat.npy")
    store = gf.BasicFeatureStore(
        {("node", None, "disk"): disk, ("node", None, "cache"): gf.cpu_cached_feature(disk, 99)}
    )
    for name in ("disk", "cache"):
        assert_same(store.read("node", None, name, convert(IDS)), ROWS[IDS])
        (pending,) = store["node", None, name].read_async(convert(IDS))
        assert_same(pending.wait(), ROWS[IDS])


def test_an_array_is_not_copied() -> None:
    rows = ROWS.numpy().copy()
    assert gf.TorchBasedFeature(rows).read().data_ptr() == rows.ctypes.data


def test_a_file_that_is_mapped_for_reading_is_not_written_to(tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    mapped = np.load(tmp_path / "feat.npy", mmap_mode="r")
    feature = gf.TorchBasedFeature(mapped).to("cpu")
    assert feature.read().data_ptr() == mapped.ctypes.data
    feature.update(torch.zeros(1, 3), torch.tensor([1]))
    assert feature.read(torch.tensor([1])).tolist() == [[0, 0, 0]]
    assert_same(torch.from_numpy(np.load(tmp_path / "feat.npy")), ROWS)


@pytest.mark.parametrize(
    "rows", [ROWS.clone().requires_grad_(), torch.nn.Embedding(4, 3).weight], ids=["leaf", "model"]
)
def test_rows_that_require_gradients_are_refused_and_not_cut_off(rows: torch.Tensor) -> None:
    feature = gf.TorchBasedFeature(ROWS.clone())
    for give in (
        lambda: gf.TorchBasedFeature(rows),
        lambda: feature.update(rows),
        lambda: feature.update(rows * 2, torch.arange(4)),
        lambda: gf.cpu_cached_feature(feature, 1000).update(rows * 2),
    ):
        with pytest.raises(ValueError, match=r"requires gradients, and rows that are read have none; give .detach\(\)"):
            give()
    assert_same(gf.TorchBasedFeature(rows.detach()).read(), rows.detach())


def test_gathered_rows_are_not_cut_off_from_their_gradients() -> None:
    weights = ROWS.clone().requires_grad_()
    with pytest.raises(
        ValueError, match=r"values requires gradients, .*; give .detach\(\), or index it: values\[index\]"
    ):
        gf.index_select(weights, IDS)
    with torch.no_grad():
        assert_same(gf.index_select(weights, IDS), ROWS[IDS])


def test_a_store_has_a_list_of_keys_and_takes_edge_types_as_tuples() -> None:
    kind = ("user", "likes", "item")
    store = gf.BasicFeatureStore({("edge", kind, "w"): gf.TorchBasedFeature(ROWS)})
    assert store.keys() == [("edge", "user:likes:item", "w")]
    assert ("edge", kind, "w") in store
    assert ("edge", "user:likes:item", "w") in store
    assert "w" not in store
    assert_same(store.read("edge", kind, "w", IDS), ROWS[IDS])  # type: ignore[arg-type]
    store["node", None, "feat"] = gf.TorchBasedFeature(ROWS)
    assert store.keys()[1] == ("node", None, "feat")


def test_pinning_returns_what_is_pinned(tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    spec = OnDiskFeatureData("node", "feat", "numpy", tmp_path / "feat.npy")
    disk = gf.DiskBasedFeature(tmp_path / "feat.npy")
    with LockedMemory().installed():
        for pinned in (gf.from_coo(([0], [1]), 2), gf.TorchBasedFeature(ROWS), gf.TorchBasedFeatureStore([spec])):
            assert pinned.pin_memory_() is pinned
    with pytest.warns(UserWarning, match="does nothing"):
        assert disk.pin_memory_() is disk
