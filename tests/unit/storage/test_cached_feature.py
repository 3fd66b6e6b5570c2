"""Features with a cache in memory: misses, shared caches, and updates that pass through and rebuild it."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops import POLICIES
from graphfeed.storage import (
    CPUCachedFeature,
    CPUFeatureCache,
    DiskBasedFeature,
    Feature,
    GPUCachedFeature,
    GPUFeatureCache,
    TorchBasedFeature,
    bytes_to_number_of_items,
    cpu_cached_feature,
    wrap_with_cached_feature,
)
from graphfeed.testing import limits
from tests.kinds.cache_models import OddRowsRemote
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

ROWS = torch.arange(400.0).reshape(100, 4)
ROW_BYTES = 16


@pytest.fixture
def disk(tmp_path: Path) -> DiskBasedFeature:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    return DiskBasedFeature(tmp_path / "feat.npy", {"unit": "m"}, num_threads=2)


def test_a_cache_steps_aside_where_the_system_has_the_file_in_memory(disk_path: Path) -> None:
    rows = torch.arange(8000.0).reshape(2000, 4)
    np.save(disk_path / "feat.npy", rows.numpy())
    disk = DiskBasedFeature(disk_path / "feat.npy")
    feature, ids = cpu_cached_feature(disk, 1 << 20), torch.randperm(2000)
    DiskBasedFeature(disk_path / "feat.npy").read(ids)  # loads kernels, whose files would count as reads
    assert_same(feature.read(ids), rows[ids])
    ((_, cache),) = feature.list_caches()
    assert (cache.misses, cache.kind) == (2000, "rows in memory, sieve")
    assert_same(feature.read(ids), rows[ids])
    (pending,) = feature.read_async(ids[:5])
    assert_same(pending.wait(), rows[ids[:5]])
    assert (cache.hits, cache.misses) == (0, 2000)
    assert cache.kind == "rows in memory, sieve; 2,005 rows were in the system's page cache"


def read_now(feature: Feature, ids: torch.Tensor) -> torch.Tensor:
    return feature.read(ids)


def read_in_stages(feature: Feature, ids: torch.Tensor) -> torch.Tensor:
    (pending,) = feature.read_async(ids)
    return pending.wait()


@limits(cache_read_bytes=2 * ROW_BYTES)
def test_missing_remote_rows_are_asked_for_at_once_and_local_ones_take_no_room() -> None:
    for read, dtype in product([read_now, read_in_stages], [torch.float32, torch.int32]):
        away = OddRowsRemote(ROWS.to(dtype))
        # Another feature shares the cache and determines the dtype of its rows.
        feature = cpu_cached_feature({"other": TorchBasedFeature(-ROWS), "away": away}, 50 * ROW_BYTES)["away"]
        for ids in ([8, 3, 5, 3, 99, 1, 8], [5, 7, 2, 1, 2], [4, 2], []):
            assert_same(read(feature, torch.tensor(ids, dtype=torch.int64)), ROWS[ids].to(dtype))
        assert [ids for ids in away.asked if ids] == [[3, 5, 99, 1], [7]]
        assert feature.miss_rate == 5 / 8
        with pytest.raises(IndexError):
            read(feature, torch.tensor([100]))


def test_features_that_share_a_cache_are_kept_apart() -> None:
    whole = torch.arange(60).reshape(30, 2)
    features = {"a": TorchBasedFeature(ROWS), "b": TorchBasedFeature(whole), "c": TorchBasedFeature(-ROWS[:7])}
    for policy in POLICIES:
        shared = cpu_cached_feature(features, 50 * ROW_BYTES, policy)
        assert list(shared) == ["a", "b", "c"]
        for _ in range(2):
            for name, feature in features.items():
                for read in (read_now, read_in_stages):
                    ids = torch.randint(0, feature.count(), (25,))
                    assert_same(read(shared[name], ids), feature.read(ids))
                for wrong in (-1, feature.count()):
                    with pytest.raises(
                        IndexError, match=f"index must be in 0 .. {feature.count() - 1}, but holds {wrong}"
                    ):
                        shared[name].read(torch.tensor([wrong]))
        assert 0 < shared["a"].miss_rate == shared["c"].miss_rate < 1, policy
        (size,) = {feature.cache_size_in_bytes for feature in shared.values()}
        assert 25 * ROW_BYTES < size <= 50 * ROW_BYTES, policy


def test_updates_of_features_that_share_a_cache_reach_their_own_rows() -> None:
    shared = cpu_cached_feature({"a": TorchBasedFeature(-ROWS), "b": TorchBasedFeature(ROWS.clone())}, 50 * ROW_BYTES)
    shared["b"].read(torch.tensor([1, 5]))
    shared["b"].update(torch.ones(2, 4), torch.tensor([5, 6]))
    wanted = ROWS.clone()
    wanted[[5, 6]] = 1
    assert_same(shared["b"].read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]])
    assert_same(shared["a"].read(torch.arange(10)), -ROWS[:10])
    shared["b"].update(ROWS + 1)
    assert_same(shared["b"].read(torch.arange(10)), ROWS[:10] + 1)
    assert_same(shared["a"].read(torch.arange(10)), -ROWS[:10])


def test_no_reader_brings_back_what_was_overwritten() -> None:
    """Threads read while one updates; afterwards all threads see the last rows."""
    fallback = TorchBasedFeature(torch.zeros(50, 1, dtype=torch.int64))
    feature = cpu_cached_feature(fallback, 20 * 8)
    stop = threading.Event()

    def keep_reading() -> None:
        while not stop.is_set():
            feature.read(torch.randint(0, 50, (30,)))

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(keep_reading) for _ in range(3)]
        for number in range(1, 200):
            ids = torch.tensor([number % 50])
            feature.update(torch.tensor([[number]]), ids)
            assert feature.read(ids).item() == number
        stop.set()
        for reader in readers:
            reader.result(60)
    assert_same(feature.read(torch.arange(50)), fallback.read())


def test_the_parts_are_public() -> None:
    rows = TorchBasedFeature(ROWS)
    for feature in (
        wrap_with_cached_feature(CPUCachedFeature, rows, 3000, "lru", pin_memory=False),
        wrap_with_cached_feature(GPUCachedFeature, rows, 3000, device="cpu"),
    ):
        assert 2500 < feature.cache_size_in_bytes <= 3000
    caches: Any = CPUFeatureCache((2, 4), torch.float32), GPUFeatureCache((2, 4), torch.float32, "cpu")
    for kind, cache in zip((CPUCachedFeature, GPUCachedFeature), caches, strict=True):
        assert_same(kind(rows, cache, offset=7).read(torch.tensor([3])), ROWS[[3]])
        assert cache.query(torch.tensor([10]))[1].tolist() == []
    assert [bytes_to_number_of_items(size, ROWS[0]) for size in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_caches_that_can_not_be_made_and_rows_of_another_dtype_are_named() -> None:
    rows = TorchBasedFeature(ROWS)
    cached = cpu_cached_feature(rows, 1000)
    narrow = {"a": rows, "b": TorchBasedFeature(ROWS[:, :2])}
    check_refused([
        (lambda: bytes_to_number_of_items(-1, ROWS[0]), ValueError, "capacity_in_bytes must be 0 or more, but is -1"),
        (lambda: cached.update(ROWS[:1].double(), torch.tensor([1])), ValueError, r"but are torch.float64 of shape"),
        (lambda: cpu_cached_feature(rows, -1), ValueError, "max_cache_size_in_bytes must be 0 or more, but is -1"),
        (lambda: cpu_cached_feature(rows, 1000, "fifo"), ValueError, "policy must be one of"),
        (lambda: cpu_cached_feature(narrow, 100), ValueError, r"same number of bytes, but have \{'a': 16, 'b': 8\}"),
        (lambda: cpu_cached_feature({}, 100), ValueError, r"must have rows of the same number of bytes, but have \{\}"),
    ])  # fmt: skip


def test_features_that_shared_a_cache_get_their_shares() -> None:
    """Layer after layer, type after type: rows that are not updated yet are kept, and the total size is bounded."""
    rows = {"a": ROWS, "b": -ROWS[:60], "c": ROWS[:40] + 1}
    shared = gf.cpu_cached_feature({name: TorchBasedFeature(own) for name, own in rows.items()}, 4000)
    for width in (16, 3, 8):
        for name, feature in shared.items():
            rows[name] = torch.rand(len(rows[name]), width)
            feature.update(rows[name])
            for kind, own in shared.items():
                ids = torch.randint(0, own.count(), (50,))
                assert_same(own.read(ids), rows[kind][ids])
    assert sum(feature.cache_size_in_bytes for feature in shared.values()) <= 4000
    assert shared["a"].cache_size_in_bytes > shared["c"].cache_size_in_bytes


def test_no_memory_is_taken_for_more_rows_than_there_are() -> None:
    for make in (gf.cpu_cached_feature, partial(gf.gpu_cached_feature, device="cpu")):
        feature: Any = make(TorchBasedFeature(ROWS), 1 << 24)
        for _ in range(2):
            assert feature.read(torch.arange(100)).equal(ROWS)
        assert feature.miss_rate == 0.5, "there is a place for each"
        assert feature.cache_size_in_bytes <= 2 * 100 * (ROW_BYTES + 33)
        more = torch.rand(250, 3)
        feature.update(more)
        assert [feature.read().equal(more), feature.cache_size_in_bytes <= 2 * 250 * (12 + 33)] == [True, True]


def test_a_cache_that_is_rebuilt_keeps_its_policy_and_its_bytes() -> None:
    for policy in POLICIES:
        feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000, policy)
        ((_, before),) = feature.list_caches()
        feature.update(ROWS.double())
        ((_, cache),) = pickle.loads(pickle.dumps(feature)).list_caches()
        assert cache.kind == before.kind
        assert 1000 < feature.cache_size_in_bytes <= 2000


def test_without_room_for_the_new_cache_the_new_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = CPUCachedFeature.cache_type
    within = kind.within

    def refuse(size: int, *arguments: object, **options: object) -> object:
        if size:
            raise MemoryError("no room")
        return within(size, *arguments, **options)  # type: ignore[arg-type]

    for new in (ROWS[:, :1], ROWS.double(), ROWS.repeat(2, 1), ROWS.reshape(100, 2, 2)):
        feature = gf.cpu_cached_feature(TorchBasedFeature(ROWS), 2000)
        feature.read(torch.arange(50))
        with monkeypatch.context() as patch:
            patch.setattr(kind, "within", refuse)
            with pytest.raises(MemoryError, match="no room"):
                feature.update(new)
        for ids in (torch.arange(60), torch.tensor([7, 99, 7])):
            assert_same(feature.read(ids), new[ids])
        feature.update(new[:1] * 0, torch.tensor([7]))
        assert feature.read(torch.tensor([7])).count_nonzero() == 0


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
