import gc
import multiprocessing
import pickle
import sys
import weakref
from mmap import PAGESIZE

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import POLICIES, policy_bytes
from graphfeed.storage import CPUFeatureCache, cpu_cached_feature
from graphfeed.storage.features import feature_cache
from graphfeed.storage.memory.shared import find_handle
from tests.cache_models import MODELS, ask, distinct
from tests.forked import in_child
from tests.ops.locked_memory import LockedMemory

each_policy = pytest.mark.parametrize("policy", POLICIES)

FAR = torch.arange(3000.0).reshape(1000, 3)


def cache_of(rows: int, policy: str | None = None) -> CPUFeatureCache:
    """Return a cache of rows as `FAR` has them."""
    return CPUFeatureCache((rows, 3), torch.float32, policy)


def read(keys: torch.Tensor) -> torch.Tensor:
    """Read from afar."""
    return FAR[keys.long()]


@each_policy
@given(
    capacity=st.integers(0, 12),
    batches=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=20),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_rows_are_those_from_afar_and_misses_those_of_the_papers(
    policy: str, capacity: int, batches: list[list[int]], dtype: torch.dtype
) -> None:
    cache, model = cache_of(capacity, policy), MODELS[policy](capacity)
    misses = total = 0
    for batch in batches:
        keys = torch.tensor(batch, dtype=dtype)
        asked: list[int] = []

        def note(missing: torch.Tensor, asked: list[int] = asked) -> torch.Tensor:
            asked.extend(missing.tolist())
            return read(missing)

        assert torch.equal(cache.query_and_replace(keys, note), FAR[keys.long()])
        assert asked == distinct(batch[place] for place in ask(model, capacity, batch))
        misses += len(asked)
        total += len(batch)
    assert (cache.misses, cache.hits) == (misses, total - misses)
    assert cache.miss_rate == misses / max(1, total)


@each_policy
@pytest.mark.parametrize("capacity", [0, 1, 5, 400])
def test_three_hundred_copies_are_one_miss_and_then_none(policy: str, capacity: int) -> None:
    cache = cache_of(capacity, policy)
    keys = torch.full((300,), 7)
    for _ in range(3):
        assert torch.equal(cache.query_and_replace(keys, read), FAR[keys])
    assert cache.misses == (1 if capacity else 3)


def test_query_tells_what_is_missing_and_replace_fills_it_in() -> None:
    cache = cache_of(5)
    cache.replace(torch.tensor([2, 4]), FAR[[2, 4]])
    values, index, keys, offsets = cache.query(torch.tensor([1, 2, 1, 4, 9], dtype=torch.int32))
    assert (index.tolist(), keys.tolist(), offsets.tolist()) == ([0, 2, 4], [1, 1, 9], [0, 3])
    assert keys.dtype == torch.int32
    assert torch.equal(values[[1, 3]], FAR[[2, 4]])
    values[index] = FAR[keys.long()]
    cache.replace(keys, values[index], offsets)
    assert cache.query(torch.tensor([1, 9, 2, 4]))[1].tolist() == []
    assert cache.misses == 2


def test_replacing_overwrites() -> None:
    cache = cache_of(4)
    cache.replace(torch.tensor([3, 3]), FAR[[1, 2]])
    assert torch.equal(cache.query(torch.tensor([3]))[0], FAR[[2]])
    cache.replace(torch.tensor([3]), FAR[[9]])
    assert torch.equal(cache.query(torch.tensor([3]))[0], FAR[[9]])


def test_it_is_bounded_in_bytes_and_pickles_small() -> None:
    cache = CPUFeatureCache((1000, 4, 2), torch.float16, "lru", num_parts=4)
    assert cache.max_size_in_bytes == 1000 * 16 + policy_bytes("lru", 1000)
    cache.replace(torch.tensor([1]), torch.ones(1, 4, 2).half())
    packed = pickle.dumps(cache)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    assert again.max_size_in_bytes == cache.max_size_in_bytes
    assert len(again.query(torch.tensor([1]))[1]) == 1
    assert not cache.is_pinned()


@each_policy
@given(size=st.integers(0, 1 << 20), width=st.integers(0, 100))
def test_as_many_rows_fit_as_memory_is_for(policy: str, size: int, width: int) -> None:
    cache = CPUFeatureCache.within(size, (width, 2), torch.int16, policy)
    rows = cache._rows.shape[0]
    assert cache._rows.nbytes + policy_bytes(policy, rows) <= max(size, policy_bytes(policy, 0))
    assert (rows + 1) * width * 4 + policy_bytes(policy, rows + 1) > size


@each_policy
def test_all_that_a_cache_holds_is_counted(policy: str) -> None:
    cache = CPUFeatureCache.within(1 << 20, (16,), torch.float64, policy)
    cache.replace(torch.arange(20_000), torch.ones(20_000, 16, dtype=torch.float64))
    assert cache._rows.nbytes + sum(array.nbytes for array in cache._policy.lists) == cache.max_size_in_bytes <= 1 << 20


def test_many_missing_rows_are_read_in_parts_which_go_through_a_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "READ_BYTES", 10 * 12)
    cache = cache_of(40)
    parts: list[list[int]] = []

    def note(keys: torch.Tensor) -> torch.Tensor:
        parts.append(keys.tolist())
        return read(keys)

    keys = torch.randint(0, 25, (200,))
    keys[:25] = torch.randperm(25)
    assert torch.equal(cache.query_and_replace(keys, note), FAR[keys])
    assert parts == [list(range(9)), list(range(9, 18)), list(range(18, 25))]
    assert torch.equal(cache.query_and_replace(keys, note), FAR[keys])
    assert cache.misses == 25


def test_statistics_before_the_first_query() -> None:
    assert cache_of(1).miss_rate == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_begins_anew() -> None:
    cache = cache_of(10)
    cache.query_and_replace(torch.tensor([1]), read)

    def child() -> None:
        misses = len(cache.query(torch.tensor([1]))[1])
        same = torch.equal(cache.query_and_replace(torch.tensor([1]), read), FAR[[1]])
        sys.exit(0 if same and misses == 1 else 1)

    with cache._lock.acquire():  # as if another thread held it
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(60)
    assert process.exitcode == 0
    assert len(cache.query(torch.tensor([1]))[1]) == 0


@pytest.mark.usefixtures("small_is_shared")
def test_a_forked_process_writes_to_rows_of_its_own() -> None:
    assert find_handle(cache_of(10)._rows) is None
    with LockedMemory().installed():  # whose memory forked processes share
        cache = CPUFeatureCache((10, 3), torch.float32, pin_memory=True)
        cache.replace(torch.arange(4), FAR[:4])
        assert (
            in_child(lambda: cache.query_and_replace(torch.arange(4), lambda keys: FAR[keys] + 1)[0, 0]) == "tensor(1.)"
        )
        assert torch.equal(cache.query(torch.arange(4))[0], FAR[:4])


def test_it_goes_when_nobody_has_it() -> None:
    cache = cache_of(10)
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_wrong_arguments_are_named() -> None:
    cache = cache_of(4)
    with pytest.raises(ValueError, match="policy must be one of"):
        cache_of(4, "fifo")
    with pytest.raises(ValueError, match="num_parts must be at least 1, but is 0"):
        CPUFeatureCache((1, 1), torch.float32, num_parts=0)
    with pytest.raises(TypeError, match=r"keys must be torch.int32 or torch.int64, but is torch.float32"):
        cache.query(torch.zeros(1))
    with pytest.raises(IndexError, match="keys must be 0 or more with the offset 2, but one is -3"):
        cache.query(torch.tensor([1, -3]), offset=2)
    with pytest.raises(IndexError, match="keys must be 0 or more"):
        cache.replace(torch.tensor([-1]), FAR[:1])
    with pytest.raises(ValueError, match="values must have one row per key, but has 2 for 1 keys"):
        cache.replace(torch.tensor([1]), FAR[:2])
    with pytest.raises(ValueError, match=r"rows of values must have 12 bytes as those of the cache, but are torch.fl"):
        cache.query_and_replace(torch.tensor([1]), lambda keys: FAR[keys].double())
    with pytest.raises(ValueError, match="values must have one row per key, but has 1 for 2 keys"):
        cache.query_and_replace(torch.tensor([1, 2]), lambda keys: FAR[:1])
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="pin_memory is True, but torch finds no CUDA device"):
            CPUFeatureCache((1, 1), torch.float32, pin_memory=True)


def test_a_pinned_cache_takes_no_more_than_its_bound_and_gives_it_back() -> None:
    """Torch's pinned memory would take a power of two bytes, and stay."""
    bound = 5 << 20
    with LockedMemory().installed() as runtime:
        feature = cpu_cached_feature(gf.TorchBasedFeature(FAR.clone()), bound, pin_memory=True)
        assert feature._cache.is_pinned()
        for rows in (FAR, FAR.double(), FAR[:2]):
            feature.update(rows)
            (size,) = runtime.locked.values()
            assert 0 <= size - feature._cache._rows.nbytes < PAGESIZE
            assert size <= bound
        del feature
        gc.collect()
        assert runtime.locked == {}
