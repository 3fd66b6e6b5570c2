import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed.ops.rows.cache_sets import set_shape
from graphfeed.storage import GPUFeatureCache
from tests.cache_models import Sets, distinct
from tests.ops.emulated_cuda import DEVICE, Cuda, EmulatedCuda, check_equal

FAR = torch.arange(3000.0).reshape(1000, 3)
BATCHES = st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=10)


def cache_of(rows: int) -> GPUFeatureCache:
    """Return a cache of rows as `FAR` has them, on the CPU, whose kernels do the same."""
    return GPUFeatureCache((rows, 3), torch.float32, device="cpu")


def read(keys: torch.Tensor) -> torch.Tensor:
    """Read from afar."""
    return FAR[keys.cpu().long()]


def ask(model: Sets, request: int, batch: list[int]) -> list[int]:
    """Return which keys of a batch are missing, and let them in."""
    missing = distinct(key for key, slot in [(key, model.find(key, request)) for key in batch] if slot < 0)
    for key in missing:
        model.insert(key, request)
    return missing


def check(cache: GPUFeatureCache, batches: list[list[int]], put: Callable[[torch.Tensor], Any], same: Any) -> None:
    """Raise unless the rows are those from afar, and the misses those of the slow version."""
    model = Sets(*set_shape(len(cache._rows)))
    misses = 0
    for request, batch in enumerate(batches):
        keys = torch.tensor(batch, dtype=torch.int32 if request % 2 else torch.int64)
        asked: list[int] = []

        def note(missing: torch.Tensor, asked: list[int] = asked) -> torch.Tensor:
            asked.extend(missing.tolist())
            return read(missing)

        same(cache.query_and_replace(put(keys), note), FAR[keys.long()])
        assert asked == ask(model, request, batch)
        misses += len(asked)
    assert (cache.misses, cache.hits) == (misses, sum(map(len, batches)) - misses)


def same_values(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found, expected)


@given(st.sampled_from([0, 1, 5, 40]), BATCHES)
def test_rows_are_those_from_afar_and_misses_those_of_the_model(capacity: int, batches: list[list[int]]) -> None:
    check(cache_of(capacity), batches, lambda keys: keys, same_values)


@settings(max_examples=15)
@given(capacity=st.sampled_from([0, 1, 5, 40]), batches=BATCHES, keys_there=st.booleans())
def test_so_they_are_on_a_gpu(cuda: Cuda, capacity: int, batches: list[list[int]], keys_there: bool) -> None:
    device = cuda.put(torch.zeros(1)).device
    for order in cuda.each_order():
        with order, cuda.running():
            cache = GPUFeatureCache((capacity, 3), torch.float32, device)
            put = cuda.put if keys_there else torch.clone
            check(cache, batches, put, lambda found, expected: check_equal(cuda, found, expected))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (0,), (67,)], ids=str)
def test_rows_of_any_kind_on_a_gpu(cuda: Cuda, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = (torch.rand(9, *shape) * 5).to(dtype)
    with cuda.running():
        cache = GPUFeatureCache((5, *shape), dtype, cuda.put(rows).device)
        for keys in (torch.tensor([4, 1, 4]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 8, 3])):
            found = cache.query_and_replace(cuda.put(keys), lambda missing: rows[missing.cpu()])
            check_equal(cuda, found, rows[keys])


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


def test_keys_below_zero_are_named_and_leave_the_rows_as_they_were() -> None:
    cache = cache_of(3)
    cache.replace(torch.tensor([0, 1]), FAR[:2])
    for wrong in (-1, -7):
        with pytest.raises(IndexError, match=f"keys must be 0 or more with the offset 0, but one is {wrong}"):
            cache.query_and_replace(torch.tensor([1, wrong]), read)
    assert torch.equal(cache.query(torch.tensor([0, 1]))[0], FAR[:2])
    assert torch.equal(cache.query_and_replace(torch.tensor([5, 6, 5]), read), FAR[[5, 6, 5]])


def test_a_device_is_waited_for_once(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("nothing counts how often a device is waited for")
    with cuda.running():
        cache = GPUFeatureCache((50, 3), torch.float32, DEVICE)
        keys = cuda.put(torch.arange(10))
        for _ in ("all are missing", "none is missing"):
            cuda.waits.clear()
            cache.query_and_replace(keys, lambda missing: cuda.put(FAR)[:10])
            assert len(cuda.waits) == 1


def test_what_is_used_now_and_then_stays() -> None:
    cache = cache_of(32)
    for number in range(40):
        cache.query_and_replace(torch.tensor([7, 100 + number]), read)
    assert len(cache.query(torch.tensor([7]))[1]) == 0
    assert len(cache.query(torch.tensor([100]))[1]) == 1
    assert len(cache.query(torch.tensor([139]))[1]) == 0


@given(size=st.integers(0, 1 << 20), width=st.integers(0, 100))
def test_it_is_bounded_in_bytes(size: int, width: int) -> None:
    cache = GPUFeatureCache.within(size, (width, 2), torch.int16, device="cpu")
    held = cache._rows.nbytes + cache._sets.keys.nbytes + cache._sets.uses.nbytes
    assert held == cache.max_size_in_bytes <= size
    assert held >= 0.9 * size - 4 * width - 16


def test_it_pickles_small_and_empty() -> None:
    cache = cache_of(1000)
    cache.replace(torch.tensor([1]), FAR[:1])
    packed = pickle.dumps(cache)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    assert again.max_size_in_bytes == cache.max_size_in_bytes
    assert len(again.query(torch.tensor([1]))[1]) == 1


def test_without_a_device_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"a cache on cuda needs a CUDA device, and torch finds none; keep rows in"):
        GPUFeatureCache((1, 1), torch.float32)
    with pytest.raises(ValueError, match="max_size_in_bytes must be 0 or more, but is -1"):
        GPUFeatureCache.within(-1, (1,), torch.float32, device="cpu")


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
