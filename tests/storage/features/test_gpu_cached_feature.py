import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import backend
from graphfeed.storage import (
    DiskBasedFeature,
    Feature,
    GPUCachedFeature,
    GPUFeatureCache,
    TorchBasedFeature,
    cpu_cached_feature,
    gpu_cached_feature,
    wrap_with_cached_feature,
)
from tests.cache_models import Staged
from tests.digests import assert_same
from tests.ops.emulated_cuda import Cuda, check_equal

ROWS = torch.arange(400.0).reshape(100, 4)
PLACE_BYTES = 32
"""A row, and what the cache remembers of it."""


def device_of(cuda: Cuda) -> torch.device:
    return cuda.put(torch.zeros(1)).device


@contextmanager
def fallback_of(kind: str, cuda: Cuda, folder: Path) -> Iterator[Feature]:
    """Yield a feature whose rows lie somewhere."""
    if kind == "disk" or kind == "memory over disk":
        np.save(folder / "feat.npy", ROWS.numpy())
    disk = DiskBasedFeature(folder / "feat.npy", num_threads=2) if "disk" in kind else None
    if kind == "pinned":
        yield TorchBasedFeature(cuda.pin(ROWS))
    elif kind == "device":
        yield TorchBasedFeature(cuda.put(ROWS))
    elif kind == "memory over disk":
        assert disk is not None
        yield cpu_cached_feature(disk, 1000)
    elif kind == "cache":
        yield gpu_cached_feature(TorchBasedFeature(ROWS.clone()), 40 * PLACE_BYTES, device_of(cuda))
    else:
        yield disk or TorchBasedFeature(ROWS.clone())


KINDS = ["memory", "pinned", "device", "disk", "memory over disk", "cache"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_as_the_fallback_wherever_that_lies(cuda: Cuda, kind: str, tmp_path: Path) -> None:
    with cuda.running(), fallback_of(kind, cuda, tmp_path) as fallback:
        feature = gpu_cached_feature(fallback, 30 * PLACE_BYTES, device_of(cuda))
        assert feature.cache_size_in_bytes <= 30 * PLACE_BYTES
        for batch in ([], [3, 99, 3, 0], list(range(40)), [0, 99, 41, 40]):
            ids = torch.tensor(batch, dtype=torch.int64)
            check_equal(cuda, feature.read(cuda.put(ids)), ROWS[ids])
            check_equal(cuda, feature.read(ids.int()), ROWS[ids])
            (pending,) = feature.read_async(cuda.put(ids))
            check_equal(cuda, pending.wait(), ROWS[ids])
        assert 0 < feature.miss_rate < 1
        assert feature.is_pinned() == (kind == "pinned")
        assert not feature.may_read_in_threads()
        assert feature.read().tolist() == ROWS.tolist()
        assert (feature.count(), feature.size(), feature.metadata()) == (100, torch.Size([4]), {})


@settings(max_examples=15)
@given(
    size=st.integers(0, 3000),
    batches=st.lists(st.lists(st.integers(0, 99), max_size=60), max_size=6),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_any_requests_give_the_rows(cuda: Cuda, size: int, batches: list[list[int]], dtype: torch.dtype) -> None:
    with cuda.running():
        feature = gpu_cached_feature(TorchBasedFeature(ROWS), size, device_of(cuda))
        assert feature.cache_size_in_bytes <= size
        for batch in batches:
            ids = torch.tensor(batch, dtype=dtype)
            check_equal(cuda, feature.read(cuda.put(ids)), ROWS[ids.long()])


def test_pinned_rows_are_read_over_the_bus(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    read = TorchBasedFeature.read

    def note(feature: TorchBasedFeature, ids: torch.Tensor | None = None) -> torch.Tensor:
        asked.append(ids)
        return read(feature, ids)

    monkeypatch.setattr(TorchBasedFeature, "read", note)
    with cuda.running():
        feature = gpu_cached_feature(TorchBasedFeature(cuda.pin(ROWS)), 3000, device_of(cuda))
        asked.clear()
        feature.read(torch.tensor([4, 2, 4]))
    assert [ids.tolist() for ids in asked] == [[4, 2]]
    assert cuda.is_there(asked[0])


def test_features_that_share_a_cache_are_kept_apart(cuda: Cuda) -> None:
    whole = torch.arange(60).reshape(30, 2)
    features = {
        ("node", "a", "feat"): TorchBasedFeature(ROWS),
        ("node", "b", "feat"): TorchBasedFeature(whole),
        ("edge", None, "c"): TorchBasedFeature(-ROWS[:7]),
    }
    with cuda.running():
        shared = gpu_cached_feature(features, 50 * PLACE_BYTES, device_of(cuda))
        assert list(shared) == list(features)
        for _ in range(3):
            for key, feature in features.items():
                ids = torch.randint(0, feature.count(), (25,))
                check_equal(cuda, shared[key].read(cuda.put(ids)), feature.read(ids))
    first, *_, last = shared.values()
    assert 0 < first.miss_rate == last.miss_rate < 1
    assert {feature.cache_size_in_bytes for feature in shared.values()} == {50 * PLACE_BYTES}


@pytest.mark.parametrize("wrong", [100, -1])
def test_an_id_without_a_row_is_named(cuda: Cuda, wrong: int) -> None:
    with cuda.running():
        feature = gpu_cached_feature(TorchBasedFeature(ROWS), 1000, device_of(cuda))
        with pytest.raises(IndexError, match=rf"index must lie in 0 .. 99, but holds {wrong}"):
            feature.read(cuda.put(torch.tensor([wrong])))


@pytest.mark.parametrize("kind", ["memory", "pinned", "device", "cache"])
def test_updates_go_through(cuda: Cuda, kind: str, tmp_path: Path) -> None:
    with cuda.running(), fallback_of(kind, cuda, tmp_path) as fallback:
        feature = gpu_cached_feature(fallback, 20 * PLACE_BYTES, device_of(cuda))
        feature.read(torch.tensor([1, 5]))
        wanted = ROWS.clone()
        wanted[[5, 6]] = 1
        feature.update(torch.ones(2, 4), torch.tensor([5, 6]))
        check_equal(cuda, feature.read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]])
        wanted[[5, 1]] = 2
        feature.update(cuda.put(torch.full((2, 4), 2.0)), cuda.put(torch.tensor([5, 1])))
        check_equal(cuda, feature.read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]])
        feature.update(ROWS + 1)
        check_equal(cuda, feature.read(torch.arange(10)), ROWS[:10] + 1)
        feature.update(ROWS[:50, :2])
        for _ in range(2):
            check_equal(cuda, feature.read(torch.arange(10)), ROWS[:10, :2])
        assert 0 < feature.miss_rate < 1


def test_stages_are_those_of_the_fallback(cuda: Cuda) -> None:
    with cuda.running():
        feature = gpu_cached_feature(Staged(ROWS), 3 * PLACE_BYTES, device_of(cuda))
        for ids in (torch.tensor([1, 2, 1]), torch.tensor([2, 50])):
            stages = list(feature.read_async(cuda.put(ids)))
            assert len(stages) == feature.read_async_num_stages(device_of(cuda)) == 3
            check_equal(cuda, stages[-1].wait(), ROWS[ids])


def pipe_of(features: Feature, device: torch.device) -> gf.Datapipe:
    torch.manual_seed(0)
    graph = gf.from_coo(torch.randint(0, 100, (2, 500)), 100)
    items = gf.ItemSet(torch.arange(100), names="seeds")
    store = gf.BasicFeatureStore({("node", None, "feat"): features})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=30, shuffle=True).sample_neighbor(graph, [3, 3])
    # The loader puts a copy to a GPU on a stream, for which nothing stands here.
    moved = pipe.copy_to(device) if device.type == "cuda" else pipe.transform(lambda batch: batch.to(device))
    return moved.fetch_feature(store, ["feat"])


def test_minibatches_are_those_without_it(cuda: Cuda) -> None:
    expected = [batch.node_features["feat"] for batch in pipe_of(TorchBasedFeature(ROWS), torch.device("cpu"))]
    with cuda.running():
        feature = gpu_cached_feature(TorchBasedFeature(ROWS), 20 * PLACE_BYTES, device_of(cuda))
        for batch, rows in zip(pipe_of(feature, device_of(cuda)), expected, strict=True):
            check_equal(cuda, batch.node_features["feat"], rows)
    assert 0 < feature.miss_rate < 1


@pytest.mark.gpu
def test_a_loader_fetches_ahead_through_it() -> None:
    expected = [batch.node_features["feat"] for batch in pipe_of(TorchBasedFeature(ROWS), torch.device("cpu"))]
    feature = gpu_cached_feature(TorchBasedFeature(ROWS), 20 * PLACE_BYTES)
    with gf.DataLoader(pipe_of(feature, torch.device("cuda")), num_workers=0, seed=0) as loader:
        for batch, rows in zip(loader, expected, strict=True):
            assert torch.equal(batch.node_features["feat"].cpu(), rows)


def test_it_pickles_with_an_empty_cache_that_is_still_shared() -> None:
    features = {name: TorchBasedFeature(ROWS[:50]) for name in "ab"}
    shared = gpu_cached_feature(features, 1000 * PLACE_BYTES, "cpu")
    shared["a"].read(torch.arange(50))
    again = pickle.loads(pickle.dumps(shared))
    assert_same(again["b"].read(torch.arange(50)), ROWS[:50])
    assert again["a"].miss_rate == 1


def test_the_parts_are_public() -> None:
    feature = wrap_with_cached_feature(GPUCachedFeature, TorchBasedFeature(ROWS), 3000, device="cpu")
    assert 2900 < feature.cache_size_in_bytes <= 3000
    assert repr(feature) == f"GPUCachedFeature(TorchBasedFeature(float32[100, 4]), {feature.cache_size_in_bytes} bytes)"
    cache = GPUFeatureCache((2, 4), torch.float32, "cpu")
    assert_same(GPUCachedFeature(TorchBasedFeature(ROWS), cache, offset=7).read(torch.tensor([3])), ROWS[[3]])
    assert cache.query(torch.tensor([10]))[1].tolist() == []


def test_without_a_device_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"a cache on cuda needs a CUDA device.*cpu_cached_feature instead"):
        gpu_cached_feature(TorchBasedFeature(ROWS), 1000)
    with pytest.raises(ValueError, match=r"must have rows of the same number of bytes, but have \{'a': 16, 'b': 8\}"):
        gpu_cached_feature({"a": TorchBasedFeature(ROWS), "b": TorchBasedFeature(ROWS[:, :2])}, 100)


def test_without_cupy_the_extra_is_named(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    load = backend.load

    def missing(package: str, op: str) -> ModuleType:
        if package == "cuda":
            raise ImportError(f"{op} needs CuPy")
        return load(package, op)

    with cuda.running():
        monkeypatch.setattr(backend, "load", missing)
        with pytest.raises(ImportError, match="cache_sets needs CuPy"):
            gpu_cached_feature(TorchBasedFeature(ROWS), 1000, device_of(cuda))
