import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import POLICIES, policy_bytes
from graphfeed.storage import (
    CPUCachedFeature,
    CPUFeatureCache,
    DiskBasedFeature,
    Feature,
    TorchBasedFeature,
    bytes_to_number_of_items,
    cpu_cached_feature,
    wrap_with_cached_feature,
)
from graphfeed.storage.features import feature_cache
from tests.cache_models import OddRowsRemote, Staged
from tests.digests import assert_same

each_policy = pytest.mark.parametrize("policy", POLICIES)

ROWS = torch.arange(400.0).reshape(100, 4)
ROW_BYTES = 16


@pytest.fixture
def disk(tmp_path: Path) -> DiskBasedFeature:
    np.save(tmp_path / "feat.npy", ROWS.numpy())
    return DiskBasedFeature(tmp_path / "feat.npy", {"unit": "m"}, num_threads=2)


@each_policy
@given(
    size=st.integers(0, 3000),
    batches=st.lists(st.lists(st.integers(0, 99), max_size=150), max_size=8),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_it_reads_as_the_fallback(policy: str, size: int, batches: list[list[int]], dtype: torch.dtype) -> None:
    fallback = TorchBasedFeature(ROWS)
    feature = cpu_cached_feature(fallback, size, policy)
    assert feature.cache_size_in_bytes <= max(size, policy_bytes(policy, 0))
    for batch in batches:
        ids = torch.tensor(batch, dtype=dtype)
        assert_same(feature.read(ids), fallback.read(ids))
        (pending,) = feature.read_async(ids)
        assert_same(pending.wait(), fallback.read(ids))


def test_a_cache_steps_aside_where_the_system_has_the_file_in_memory(tmp_path: Path) -> None:
    rows = torch.arange(8000.0).reshape(2000, 4)
    np.save(tmp_path / "feat.npy", rows.numpy())
    disk = DiskBasedFeature(tmp_path / "feat.npy")
    feature, ids = cpu_cached_feature(disk, 1 << 20), torch.randperm(2000)
    DiskBasedFeature(tmp_path / "feat.npy").read(ids)  # loads kernels, whose files would count as reads of this one
    assert_same(feature.read(ids), rows[ids])
    ((_, cache),) = feature.list_caches()
    assert (cache.misses, cache.kind) == (2000, "rows in memory, sieve")
    assert_same(feature.read(ids), rows[ids])
    (pending,) = feature.read_async(ids[:5])
    assert_same(pending.wait(), rows[ids[:5]])
    assert (cache.hits, cache.misses) == (0, 2000)
    assert cache.kind == "rows in memory, sieve; 2,005 rows were in the system's page cache"
    disk._reads.decide(2000, 2000)  # the system has dropped its pages
    assert_same(feature.read(ids), rows[ids])
    assert cache.hits == 2000


@each_policy
def test_a_file_behind_a_cache(disk: DiskBasedFeature, policy: str) -> None:
    feature = cpu_cached_feature(disk, 30 * ROW_BYTES, policy)
    ids = torch.tensor([3, 99, 3, 0])
    for _ in range(2):
        assert_same(feature.read(ids), ROWS[ids])
    assert feature.miss_rate == 3 / 8
    assert_same(feature.read(), ROWS)
    assert (feature.count(), feature.size(), feature.metadata()) == (100, torch.Size([4]), {"unit": "m"})
    assert not feature.may_read_in_threads()
    assert not feature.is_pinned()
    assert repr(feature) == f"CPUCachedFeature({disk!r}, {feature.cache_size_in_bytes} bytes)"


def read_now(feature: Feature, ids: torch.Tensor) -> torch.Tensor:
    return feature.read(ids)


def read_in_stages(feature: Feature, ids: torch.Tensor) -> torch.Tensor:
    (pending,) = feature.read_async(ids)
    return pending.wait()


@pytest.mark.parametrize("read", [read_now, read_in_stages])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_missing_remote_rows_are_asked_for_at_once_and_local_ones_take_no_room(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Feature, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(feature_cache, "READ_BYTES", 2 * ROW_BYTES)
    away = OddRowsRemote(ROWS.to(dtype))
    # Another feature shares the cache and decides the dtype of its rows.
    feature = cpu_cached_feature({"other": TorchBasedFeature(-ROWS), "away": away}, 50 * ROW_BYTES)["away"]
    for ids in ([8, 3, 5, 3, 99, 1, 8], [5, 7, 2, 1, 2], [4, 2], []):
        assert_same(read(feature, torch.tensor(ids, dtype=torch.int64)), ROWS[ids].to(dtype))
    assert [ids for ids in away.asked if ids] == [[3, 5, 99, 1], [7]]
    assert feature.miss_rate == 5 / 8
    with pytest.raises(IndexError):
        read(feature, torch.tensor([100]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(5, 1), (5, 3), (5, 2, 3), (5, 0)], ids=str)
def test_rows_of_any_kind(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = (torch.rand(shape) * 5).to(dtype)
    feature = cpu_cached_feature(TorchBasedFeature(rows), 100)
    for ids in (torch.tensor([4, 1, 4]), torch.tensor([], dtype=torch.int64), torch.tensor([1])):
        assert_same(feature.read(ids), rows[ids])


@pytest.mark.parametrize("wrong", [100, -1])
def test_an_id_without_a_row_is_named(wrong: int) -> None:
    feature = cpu_cached_feature({"a": TorchBasedFeature(ROWS), "b": TorchBasedFeature(-ROWS)}, 1000)
    for one in feature.values():
        with pytest.raises(IndexError, match=rf"index must lie in 0 .. 99, but holds {wrong}"):
            one.read(torch.tensor([wrong]))


@each_policy
def test_features_that_share_a_cache_are_kept_apart(policy: str) -> None:
    whole = torch.arange(60).reshape(30, 2)
    features = {"a": TorchBasedFeature(ROWS), "b": TorchBasedFeature(whole), "c": TorchBasedFeature(-ROWS[:7])}
    shared = cpu_cached_feature(features, 50 * ROW_BYTES, policy)
    assert list(shared) == ["a", "b", "c"]
    for _ in range(4):
        for name, feature in features.items():
            ids = torch.randint(0, feature.count(), (25,))
            assert_same(shared[name].read(ids), feature.read(ids))
    assert 0 < shared["a"].miss_rate == shared["c"].miss_rate < 1
    (size,) = {feature.cache_size_in_bytes for feature in shared.values()}
    assert 25 * ROW_BYTES < size <= 50 * ROW_BYTES


def test_threads_may_read_it_where_they_may_read_the_fallback() -> None:
    assert cpu_cached_feature(TorchBasedFeature(ROWS), 1000).may_read_in_threads()


def test_it_says_what_rows_are_of(disk: DiskBasedFeature) -> None:
    cached = gf.cpu_cached_feature(disk, 1000)
    assert cached.dtype is disk.dtype is cached.read(torch.tensor([0])).dtype


def test_rows_of_other_sizes_share_no_cache() -> None:
    with pytest.raises(ValueError, match=r"must have rows of the same number of bytes, but have \{'a': 16, 'b': 8\}"):
        cpu_cached_feature({"a": TorchBasedFeature(ROWS), "b": TorchBasedFeature(ROWS[:, :2])}, 100)
    with pytest.raises(ValueError, match=r"must have rows of the same number of bytes, but have \{\}"):
        cpu_cached_feature({}, 100)


def test_updates_go_through() -> None:
    rows = ROWS.clone()
    shared = cpu_cached_feature({"a": TorchBasedFeature(-ROWS), "b": TorchBasedFeature(rows)}, 50 * ROW_BYTES)
    ids = torch.tensor([1, 5])
    shared["b"].read(ids)
    shared["b"].update(torch.ones(2, 4), torch.tensor([5, 6]))
    wanted = ROWS.clone()
    wanted[[5, 6]] = 1
    assert_same(shared["b"].read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]])
    assert_same(shared["a"].read(torch.arange(10)), -ROWS[:10])
    shared["b"].update(ROWS + 1)
    assert_same(shared["b"].read(torch.arange(10)), ROWS[:10] + 1)
    assert_same(shared["a"].read(torch.arange(10)), -ROWS[:10])


def test_updates_that_do_not_fit_are_refused() -> None:
    feature = cpu_cached_feature(TorchBasedFeature(ROWS), 100)
    with pytest.raises(ValueError, match=r"rows of value must be torch.float32 of shape \(4,\) as those of the cache"):
        feature.update(ROWS[:1, :2], torch.tensor([1]))
    with pytest.raises(ValueError, match="must be greater than 1, but got 1 dimension"):
        feature.update(ROWS[:, 0])
    assert_same(feature.read(torch.tensor([1])), ROWS[1:2])
    with pytest.raises(ValueError, match=r"but are torch.float64 of shape"):
        feature.update(ROWS[:1].double(), torch.tensor([1]))


def test_no_reader_brings_back_what_was_overwritten() -> None:
    """Threads read while one updates; afterwards everybody sees the last rows."""
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


def test_stages_are_those_of_the_fallback() -> None:
    inner = cpu_cached_feature(Staged(ROWS), 5 * ROW_BYTES)
    feature: Feature = cpu_cached_feature(inner, 3 * ROW_BYTES)
    for ids in (torch.tensor([1, 2, 1]), torch.tensor([2, 50])):
        stages = list(feature.read_async(ids))
        assert len(stages) == feature.read_async_num_stages(torch.device("cpu")) == 3
        assert_same(stages[-1].wait(), ROWS[ids])


def test_it_pickles_with_an_empty_cache_that_is_still_shared(disk: DiskBasedFeature) -> None:
    shared = cpu_cached_feature({"a": disk, "b": disk}, 1000 * ROW_BYTES)
    shared["a"].read(torch.arange(100))
    packed = pickle.dumps(shared)
    assert len(packed) < 1 << 12
    again = pickle.loads(packed)
    assert_same(again["b"].read(torch.arange(100)), ROWS)
    assert again["a"].miss_rate == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_reads_through_it(disk: DiskBasedFeature, num_workers: int) -> None:
    graph = gf.from_coo(torch.randint(0, 100, (2, 500)), 100)
    key = ("node", None, "feat")
    plain, cached = (
        gf.ItemSampler(gf.ItemSet(torch.arange(100), names="seeds"), batch_size=10)
        .sample_neighbor(graph, [3, 3])
        .fetch_feature(gf.BasicFeatureStore({key: feature}), ["feat"])
        for feature in (TorchBasedFeature(ROWS), cpu_cached_feature(disk, 20 * ROW_BYTES))
    )
    with (
        gf.DataLoader(plain, num_workers=0, seed=1) as first,
        gf.DataLoader(cached, num_workers=num_workers, seed=1) as second,
    ):
        for one, other in zip(first, second, strict=True):
            assert_same(one.node_features, other.node_features)


def test_the_parts_are_public() -> None:
    feature = wrap_with_cached_feature(CPUCachedFeature, TorchBasedFeature(ROWS), 3000, "lru", pin_memory=False)
    assert 2500 < feature.cache_size_in_bytes <= 3000
    cache = CPUFeatureCache((2, 4), torch.float32)
    assert_same(CPUCachedFeature(TorchBasedFeature(ROWS), cache, offset=7).read(torch.tensor([3])), ROWS[[3]])
    assert cache.query(torch.tensor([10]))[1].tolist() == []
    assert [bytes_to_number_of_items(size, ROWS[0]) for size in (0, 1, 16, 17)] == [0, 1, 1, 2]
    with pytest.raises(ValueError, match="cache_capacity_in_bytes must be 0 or more, but is -1"):
        bytes_to_number_of_items(-1, ROWS[0])
    with pytest.raises(ValueError, match="max_size_in_bytes must be 0 or more, but is -1"):
        cpu_cached_feature(TorchBasedFeature(ROWS), -1)
