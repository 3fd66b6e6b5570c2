import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from graphfeed.ops import POLICIES
from graphfeed.storage import CPUFeatureCache, GPUFeatureCache
from graphfeed.storage.features.row_cache import RowCache

CACHES = [CPUFeatureCache((5, 3), torch.float32), GPUFeatureCache((5, 3), torch.float32, device="cpu")]
Cache = CPUFeatureCache | GPUFeatureCache
Make = Callable[[int], Cache]
FAR = torch.arange(3000.0).reshape(1000, 3)


def in_memory(policy: str, rows: int) -> Cache:
    """Return a cache of rows as `FAR` has them."""
    return CPUFeatureCache((rows, 3), torch.float32, policy)


def in_sets(rows: int) -> Cache:
    """Return one for a GPU, on the CPU, whose kernels do the same."""
    return GPUFeatureCache((rows, 3), torch.float32, device="cpu")


def read(keys: torch.Tensor) -> torch.Tensor:
    """Read from afar."""
    return FAR[keys.long()]


each_kind = pytest.mark.parametrize(
    "make", [*(partial(in_memory, policy) for policy in POLICIES), in_sets], ids=[*POLICIES, "sets"]
)
each_cache = pytest.mark.parametrize("cache", CACHES, ids=lambda cache: type(cache).__name__)


@each_cache
def test_what_is_asked_for_is_counted(cache: RowCache) -> None:
    assert cache.miss_rate == 0
    cache.query_and_replace(torch.tensor([1, 2, 1]), lambda keys: torch.zeros(len(keys), 3))
    assert (cache.hits, cache.misses, cache.miss_rate) == (1, 2, 2 / 3)
    assert not cache.is_pinned()
    assert cache.device == torch.device("cpu")


@each_cache
def test_keys_and_rows_are_checked(cache: RowCache) -> None:
    with pytest.raises(TypeError, match=r"keys must be torch.int32 or torch.int64, but is torch.float32"):
        cache.replace(torch.zeros(1), torch.zeros(1, 3))
    with pytest.raises(IndexError, match="keys must be 0 or more with the offset 2, but one is -3"):
        cache.replace(torch.tensor([-3]), torch.zeros(1, 3), offset=2)
    with pytest.raises(ValueError, match="values must have one row per key, but has 2 for 1 keys"):
        cache.replace(torch.tensor([1]), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"rows of values must have 12 bytes as those of the cache, but are torch.fl"):
        cache.query_and_replace(torch.tensor([9]), lambda keys: torch.zeros(1, 3).double())


@each_kind
@pytest.mark.parametrize("capacity", [1, 30, 500])
def test_many_threads_get_the_right_rows(make: Make, capacity: int) -> None:
    cache = make(capacity)

    def use(seed: int) -> bool:
        draws = torch.Generator().manual_seed(seed)
        keys = [(1000 * torch.rand(200, generator=draws) ** 3).long() for _ in range(20)]
        return all(torch.equal(cache.query_and_replace(own, read), FAR[own]) for own in keys)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(8)))
    assert cache.hits + cache.misses == 8 * 20 * 200


@each_kind
def test_nobody_waits_for_a_slow_reader(make: Make) -> None:
    cache = make(10)
    inside, go_on = threading.Event(), threading.Event()

    def slow(keys: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert go_on.wait(60)
        return read(keys)

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(cache.query_and_replace, torch.tensor([1, 2]), slow)
        assert inside.wait(60)
        assert torch.equal(cache.query_and_replace(torch.tensor([2, 3]), read), FAR[[2, 3]])
        go_on.set()
        assert torch.equal(late.result(60), FAR[[1, 2]])


@each_kind
@pytest.mark.parametrize(
    "change", [lambda cache: cache.replace(torch.tensor([1]), FAR[[8]]), lambda cache: cache.clear()]
)
def test_rows_that_were_read_before_a_change_are_not_kept(make: Make, change: Callable[[Cache], None]) -> None:
    cache = make(10)

    def meanwhile(keys: torch.Tensor) -> torch.Tensor:
        rows = read(keys)
        change(cache)
        return rows

    assert torch.equal(cache.query_and_replace(torch.tensor([1]), meanwhile), FAR[[1]])
    values, missing, *_ = cache.query(torch.tensor([1]))
    assert len(missing) == 1 or torch.equal(values, FAR[[8]])


@each_kind
def test_a_failed_read_leaves_the_cache_as_it_was(make: Make) -> None:
    cache = make(10)
    cache.query_and_replace(torch.tensor([1]), read)

    def fail(keys: torch.Tensor) -> torch.Tensor:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        cache.query_and_replace(torch.tensor([1, 2]), fail)
    assert torch.equal(cache.query_and_replace(torch.tensor([1, 2]), read), FAR[[1, 2]])


@each_kind
def test_offsets_keep_keys_apart(make: Make) -> None:
    cache = make(10)
    cache.replace(torch.tensor([0, 1]), FAR[:2])
    cache.replace(torch.tensor([0, 1]), FAR[5:7], offset=2)
    assert torch.equal(cache.query(torch.tensor([0, 1, 2, 3]))[0], FAR[[0, 1, 5, 6]])
    assert torch.equal(cache.query(torch.tensor([1]), offset=2)[0], FAR[[6]])
    assert torch.equal(cache.query_and_replace(torch.tensor([1]), read, 2), FAR[[6]])
