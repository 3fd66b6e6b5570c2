"""Features with a cache on a GPU, and the cache itself: rows of any fallback, its model's misses, few waits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage import (
    DiskBasedFeature,
    Feature,
    GPUFeatureCache,
    TorchBasedFeature,
    cpu_cached_feature,
    gpu_cached_feature,
)
from graphfeed.storage.features import row_cache
from tests.kinds.refusals import check_refused
from tests.stand_ins.devices import Cpu, brought
from tests.stand_ins.emulated_cuda import Cuda, check_equal

ROWS = torch.arange(400.0).reshape(100, 4)
PLACE_BYTES = 32
"""A row, and what the cache remembers of it."""


def device_of(cuda: Cuda) -> torch.device:
    return cuda.put(torch.zeros(1)).device


@contextmanager
def fallback_of(kind: str, cuda: Cuda, folder: Path) -> Iterator[Feature]:
    """Yield a feature whose rows are stored elsewhere."""
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


def test_an_interrupt_between_keys_and_rows_leaves_none_of_both(cuda: Cuda) -> None:
    with cuda.running():
        cached = gpu_cached_feature(TorchBasedFeature(cuda.pin(ROWS)), 30 * PLACE_BYTES, device_of(cuda))
        in_memory = cpu_cached_feature(TorchBasedFeature(ROWS.clone()), 960)
        for feature, ids in ((cached, cuda.put(torch.arange(20))), (in_memory, torch.arange(20))):
            with patch.object(row_cache, "copy_rows", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                feature.read(ids)
            for _ in range(2):
                assert torch.equal(brought(Cpu() if ids.is_cpu else cuda, feature.read(ids)), ROWS[:20])


def test_it_reads_as_the_fallback_wherever_that_lies(cuda: Cuda, tmp_path: Path) -> None:
    for kind in KINDS:
        with cuda.running(), fallback_of(kind, cuda, tmp_path) as fallback:
            feature = gpu_cached_feature(fallback, 30 * PLACE_BYTES, device_of(cuda))
            assert feature.cache_size_in_bytes <= 30 * PLACE_BYTES
            for batch in ([], [3, 99, 3, 0], list(range(40)), [0, 99, 41, 40]):
                ids = torch.tensor(batch, dtype=torch.int64)
                check_equal(cuda, feature.read(cuda.put(ids)), ROWS[ids], kind)
                check_equal(cuda, feature.read(ids.int()), ROWS[ids], kind)
                (pending,) = feature.read_async(cuda.put(ids))
                check_equal(cuda, pending.wait(), ROWS[ids], kind)
            for wrong in (100, -1):
                with pytest.raises(IndexError, match=rf"index must be in 0 .. 99, but holds {wrong}"):
                    feature.read(cuda.put(torch.tensor([wrong])))
            assert 0 < feature.miss_rate < 1, kind
            assert feature.is_pinned() == (kind == "pinned"), kind
            assert not feature.may_read_in_threads()
            assert feature.read().tolist() == ROWS.tolist()
            assert (feature.count(), feature.size(), feature.metadata()) == (100, torch.Size([4]), {})


def test_updates_go_through(cuda: Cuda, tmp_path: Path) -> None:
    for kind in ("memory", "pinned", "device", "cache"):
        with cuda.running(), fallback_of(kind, cuda, tmp_path) as fallback:
            feature = gpu_cached_feature(fallback, 20 * PLACE_BYTES, device_of(cuda))
            feature.read(torch.tensor([1, 5]))
            wanted = ROWS.clone()
            wanted[[5, 6]] = 1
            feature.update(torch.ones(2, 4), torch.tensor([5, 6]))
            check_equal(cuda, feature.read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]], kind)
            wanted[[5, 1]] = 2
            feature.update(cuda.put(torch.full((2, 4), 2.0)), cuda.put(torch.tensor([5, 1])))
            check_equal(cuda, feature.read(torch.tensor([1, 5, 6, 7])), wanted[[1, 5, 6, 7]], kind)
            feature.update(ROWS + 1)
            check_equal(cuda, feature.read(torch.arange(10)), ROWS[:10] + 1, kind)
            feature.update(ROWS[:50, :2])
            for _ in range(2):
                check_equal(cuda, feature.read(torch.arange(10)), ROWS[:10, :2], kind)
            assert 0 < feature.miss_rate < 1, kind


def pipe_of(features: Feature, device: torch.device) -> gf.Datapipe:
    torch.manual_seed(0)
    graph = gf.from_coo(torch.randint(0, 100, (2, 500)), 100)
    items = gf.ItemSet(torch.arange(100), names="seeds")
    store = gf.BasicFeatureStore({("node", None, "feat"): features})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=30, shuffle=True).sample_neighbor(graph, [3, 3])
    # The loader puts a copy to a GPU on a stream, which has no substitute here.
    moved = pipe.copy_to(device) if device.type == "cuda" else pipe.transform(lambda batch: batch.to(device))
    return moved.fetch_feature(store, ["feat"])


@pytest.mark.gpu
def test_a_loader_fetches_ahead_through_it() -> None:
    expected = [batch.node_features["feat"] for batch in pipe_of(TorchBasedFeature(ROWS), torch.device("cpu"))]
    feature = gpu_cached_feature(TorchBasedFeature(ROWS), 20 * PLACE_BYTES)
    with gf.DataLoader(pipe_of(feature, torch.device("cuda")), num_workers=0, seed=0) as loader:
        for batch, rows in zip(loader, expected, strict=True):
            assert torch.equal(batch.node_features["feat"].cpu(), rows)


FAR = torch.arange(3000.0).reshape(1000, 3)


def taken(rows: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
    """Return rows, read on the CPU."""
    return rows[missing.cpu()]


def test_rows_of_any_kind_on_a_gpu(cuda: Cuda) -> None:
    shapes = ((1,), (3,), (2, 3), (0,), (67,))
    for shape, dtype in product(shapes, (torch.bool, torch.float16, torch.bfloat16, torch.int64)):
        rows = (torch.rand(9, *shape) * 5).to(dtype)
        with cuda.running():
            cache = GPUFeatureCache((5, *shape), dtype, cuda.put(rows).device)
            for keys in (torch.tensor([4, 1, 4]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 8, 3])):
                found = cache.query_and_replace(cuda.put(keys), partial(taken, rows))
                check_equal(cuda, found, rows[keys], f"{dtype} {shape}")


def test_query_tells_what_is_missing_and_replace_fills_it_in(cuda: Cuda) -> None:
    with cuda.running():
        cache = GPUFeatureCache((5, 3), torch.float32, cuda.put(FAR).device)
        cache.replace(torch.tensor([2, 4]), FAR[[2, 4]])
        values, index, keys = cache.query(torch.tensor([1, 2, 1, 4, 9], dtype=torch.int32))
        check_equal(cuda, index, torch.tensor([0, 2, 4]))
        check_equal(cuda, keys, torch.tensor([1, 1, 9], dtype=torch.int32))
        check_equal(cuda, values[cuda.put(torch.tensor([1, 3]))], FAR[[2, 4]])
        cache.replace(keys, cuda.put(FAR[[1, 1, 9]]))
        assert cache.query(torch.tensor([1, 9, 2, 4]))[1].tolist() == []
        assert cache.misses == 2
        cache.replace(torch.tensor([1, 9, 1]), FAR[[7, 8, 6]])
        check_equal(cuda, cache.query(torch.tensor([1, 9, 2, 4]))[0], FAR[[6, 8, 2, 4]])
        cache.clear()
        assert cache.query(torch.tensor([1, 9, 2, 4]))[1].tolist() == [0, 1, 2, 3]


@pytest.mark.gpu
def test_threads_with_streams_of_their_own_get_the_right_rows() -> None:
    far = torch.arange(40_000.0).reshape(10_000, 4).cuda()
    cache = GPUFeatureCache((500, 4), torch.float32)

    def use(seed: int) -> bool:
        draws = torch.Generator().manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            keys = [(10_000 * torch.rand(2000, generator=draws) ** 3).long().cuda() for _ in range(50)]
            return all(
                torch.equal(cache.query_and_replace(own, lambda missing: far[missing]), far[own]) for own in keys
            )

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(16)))


def test_without_a_device_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    rows = TorchBasedFeature(ROWS)
    narrow = {"a": rows, "b": TorchBasedFeature(ROWS[:, :2])}
    of_gpu = r"a cache on cuda needs a CUDA device.*cpu_cached_feature instead"
    check_refused([
        (lambda: gpu_cached_feature(rows, 1000), RuntimeError, of_gpu),
        (lambda: GPUFeatureCache((1, 1), torch.float32), RuntimeError, "a cache on cuda needs a CUDA device"),
        (lambda: gpu_cached_feature(narrow, 100), ValueError,
         r"of the same number of bytes, but have \{'a': 16, 'b': 8"),
        (lambda: gpu_cached_feature(rows, -1, "cpu"), ValueError,
         "max_cache_size_in_bytes must be 0 or more, but is -1"),
    ])  # fmt: skip
