"""All rows of a cached feature may be replaced by others, as layer-wise inference does; the cache is rebuilt."""

import gc
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops import POLICIES
from graphfeed.storage import CPUCachedFeature, DiskBasedFeature, Feature, GPUCachedFeature, TorchBasedFeature
from tests.cache_models import Staged
from tests.digests import assert_same

ROWS = torch.arange(400.0).reshape(100, 4)
IDS = torch.tensor([7, 99, 7, 0])
NEW = {
    "wider": torch.arange(1600.0).reshape(100, 16),
    "narrower": torch.arange(100.0)[:, None],
    "more dimensions": torch.arange(2400).reshape(100, 2, 3, 4),
    "another dtype": ROWS.double(),
    "as many bytes": ROWS.int(),
    "more rows": torch.arange(800.0).reshape(200, 4),
}

each_new = pytest.mark.parametrize("new", NEW.values(), ids=NEW.keys())


def check(feature: Feature, rows: torch.Tensor) -> None:
    """Read some rows twice, then all rows, and write one."""
    for _ in range(2):
        assert_same(feature.read(IDS), rows[IDS])
        stages = list(feature.read_async(IDS))
        assert_same(stages[-1].wait(), rows[IDS])
    assert_same(feature.read(), rows)
    assert (feature.count(), feature.size(), feature.dtype) == (len(rows), rows.shape[1:], rows.dtype)


@each_new
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_in_memory_is_rebuilt_with_its_bytes_and_its_policy(new: torch.Tensor, policy: str) -> None:
    feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000, policy)
    check(feature, ROWS)
    feature.update(new)
    assert feature.miss_rate == 0
    check(feature, new)
    assert 0 < feature.miss_rate < 1
    assert 1000 < feature.cache_size_in_bytes <= 2000
    feature.update(new[:1] * 0, torch.tensor([7]))
    assert feature.read(IDS)[[0, 2]].count_nonzero() == 0
    assert repr(policy) in repr(pickle.loads(pickle.dumps(feature))._cache._arguments)
    feature.update(ROWS)
    check(feature, ROWS)


@each_new
def test_a_cache_on_a_gpu_is_rebuilt(new: torch.Tensor) -> None:
    """On the CPU, whose kernels do the same."""
    feature = gf.gpu_cached_feature(TorchBasedFeature(ROWS), 2000, device="cpu")
    check(feature, ROWS)
    feature.update(new)
    check(feature, new)
    assert feature.cache_size_in_bytes <= 2000
    assert isinstance(feature, GPUCachedFeature)


@each_new
def test_rows_of_a_file_are_replaced_by_rows_in_memory_and_the_file_stays(new: torch.Tensor, tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    disk = DiskBasedFeature(tmp_path / "feat.npy", num_threads=2)
    caches: list[Feature] = [gf.cpu_cached_feature(disk, 2000), gf.gpu_cached_feature(disk, 2000, device="cpu")]
    caches.append(gf.gpu_cached_feature(gf.cpu_cached_feature(disk, 2000), 500, device="cpu"))
    for feature in caches:
        check(feature, ROWS)
        with pytest.raises(NotImplementedError, match="is only read"):
            feature.update(ROWS[:1], torch.tensor([0]))
        feature.update(new)
        check(feature, new)
    assert_same(disk.read(), ROWS)
    same = gf.cpu_cached_feature(disk, 2000)
    same.update(-ROWS)
    check(same, -ROWS)


def test_a_fallback_of_several_stages_is_updated() -> None:
    feature = gf.cpu_cached_feature(Staged(ROWS.clone()), 2000)
    check(feature, ROWS)
    feature.update(ROWS * 2)
    check(feature, ROWS * 2)


def test_features_that_shared_a_cache_get_their_shares() -> None:
    """Layer after layer, type after type: what is not updated yet stays, and the bytes stay bounded in the end."""
    rows = {"a": ROWS, "b": -ROWS[:60], "c": ROWS[:40] + 1}
    shared = gf.cpu_cached_feature({name: TorchBasedFeature(own) for name, own in rows.items()}, 4000)
    first = weakref.ref(shared["a"]._cache)
    for width in (16, 3, 8):
        for name, feature in shared.items():
            rows[name] = torch.rand(len(rows[name]), width)
            feature.update(rows[name])
            for kind, own in shared.items():
                ids = torch.randint(0, own.count(), (50,))
                assert_same(own.read(ids), rows[kind][ids])
    gc.collect()
    assert first() is None
    assert sum(feature.cache_size_in_bytes for feature in shared.values()) <= 4000
    assert shared["a"].cache_size_in_bytes > shared["c"].cache_size_in_bytes


def test_the_old_cache_is_freed_before_the_new_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000)
    old = weakref.ref(feature._cache)
    made = []
    within = CPUCachedFeature.cache_type.within

    def watch(size: int, *arguments: object) -> object:
        gc.collect()
        made.append((size, old() is None))
        return within(size, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CPUCachedFeature.cache_type, "within", watch)
    feature.update(ROWS[:, :2])
    assert made == [(0, False), (2000, True)]


@each_new
def test_without_room_for_the_new_cache_the_new_rows_are_read(
    new: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = CPUCachedFeature.cache_type
    within = kind.within

    def refuse(size: int, *arguments: object) -> object:
        if size:
            raise MemoryError("no room")
        return within(size, *arguments)  # type: ignore[arg-type]

    feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000)
    check(feature, ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "within", refuse)
        with pytest.raises(MemoryError, match="no room"):
            feature.update(new)
    check(feature, new)
    feature.update(new[:1] * 0, torch.tensor([7]))
    assert feature.read(IDS)[[0, 2]].count_nonzero() == 0


def test_where_no_cache_can_be_made_the_rows_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise MemoryError("no room")

    feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000)
    with monkeypatch.context() as patch:
        patch.setattr(CPUCachedFeature.cache_type, "within", refuse)
        with pytest.raises(MemoryError, match="no room"):
            feature.update(ROWS.double())
    check(feature, ROWS)


def test_layer_wise_inference_of_a_store_in_a_pipeline() -> None:
    graph = gf.from_coo((torch.arange(99), torch.arange(1, 100)), 100)
    store = gf.BasicFeatureStore({("node", None, "h"): gf.cpu_cached_feature(TorchBasedFeature(ROWS), 500)})
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(100, names="seeds"), batch_size=30).sample_neighbor(graph, [-1])
    rows = ROWS
    with gf.DataLoader(pipe.fetch_feature(store, ["h"]), num_workers=2) as loader:
        for width in (6, 2):
            hidden = torch.zeros(100, width)
            for batch in loader:
                assert_same(batch.node_features["h"], rows[batch.input_nodes])
                hidden[batch.seeds] = batch.node_features["h"][: len(batch.seeds), :1].expand(-1, width) + 1
            rows = hidden
            store.update("node", None, "h", hidden)
