"""Caches of rows, in memory and as on a GPU: which rows stay, thread safety, and size in bytes."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import POLICIES
from graphfeed.storage import CPUFeatureCache, GPUFeatureCache, cpu_cached_feature
from tests.kinds.cache_models import Sieve, ask, distinct
from tests.kinds.refusals import Refusal, check_refused
from tests.stand_ins.forked import in_child
from tests.stand_ins.locked_memory import LockedMemory

Cache = CPUFeatureCache | GPUFeatureCache
Make = Callable[[int], Cache]
FAR = torch.arange(3000.0).reshape(1000, 3)


def in_memory(policy: str, rows: int) -> Cache:
    """Return a cache of rows like those of `FAR`."""
    return CPUFeatureCache((rows, 3), torch.float32, policy)


def in_sets(rows: int) -> Cache:
    """Return a cache for a GPU, on the CPU, whose kernels are equivalent."""
    return GPUFeatureCache((rows, 3), torch.float32, device="cpu")


def read(keys: torch.Tensor) -> torch.Tensor:
    """Read from `FAR`."""
    return FAR[keys.long()]


KINDS: dict[str, Make] = {"sieve": partial(in_memory, "sieve"), "sets": in_sets}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def test_many_threads_get_the_right_rows() -> None:
    for capacity, make in product((1, 30, 500), KINDS.values()):
        cache = make(capacity)

        def use(seed: int, cache: Cache = cache) -> bool:
            draws = torch.Generator().manual_seed(seed)
            keys = [(1000 * torch.rand(200, generator=draws) ** 3).long() for _ in range(10)]
            return all(torch.equal(cache.query_and_replace(own, read), FAR[own]) for own in keys)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(use, range(8))), capacity
        assert cache.hits + cache.misses == 8 * 10 * 200


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


def test_rows_that_were_read_before_a_change_are_not_kept() -> None:
    changes: list[Callable[[Cache], None]] = [
        lambda cache: cache.replace(torch.tensor([1]), FAR[[8]]),
        lambda cache: cache.clear(),
    ]
    for make, change in product(KINDS.values(), changes):
        cache = make(10)

        def meanwhile(
            keys: torch.Tensor, cache: Cache = cache, change: Callable[[Cache], None] = change
        ) -> torch.Tensor:
            rows = read(keys)
            change(cache)
            return rows

        assert torch.equal(cache.query_and_replace(torch.tensor([1]), meanwhile), FAR[[1]])
        values, missing, *_ = cache.query(torch.tensor([1]))
        assert len(missing) == 1 or torch.equal(values, FAR[[8]])


def test_a_failed_read_leaves_the_cache_as_it_was() -> None:
    def fail(keys: torch.Tensor) -> torch.Tensor:
        raise error

    errors: list[BaseException] = [OSError("gone"), KeyboardInterrupt()]
    for (kind, make), error in product(KINDS.items(), errors):
        cache = make(10)
        cache.query_and_replace(torch.tensor([1]), read)
        with pytest.raises(type(error)):
            cache.query_and_replace(torch.tensor([1, 2]), fail)
        assert torch.equal(cache.query_and_replace(torch.tensor([1, 2]), read), FAR[[1, 2]]), kind


def test_offsets_keep_keys_apart() -> None:
    for kind, make in KINDS.items():
        cache = make(10)
        cache.replace(torch.tensor([0, 1]), FAR[:2])
        cache.replace(torch.tensor([0, 1]), FAR[5:7], offset=2)
        assert torch.equal(cache.query(torch.tensor([0, 1, 2, 3]))[0], FAR[[0, 1, 5, 6]]), kind
        assert torch.equal(cache.query(torch.tensor([1]), offset=2)[0], FAR[[6]]), kind
        assert torch.equal(cache.query_and_replace(torch.tensor([1]), read, 2), FAR[[6]]), kind
        cache.replace(torch.tensor([1, 1]), FAR[[8, 9]])
        assert torch.equal(cache.query(torch.tensor([1]))[0], FAR[[9]]), kind


def refusals(cache: Cache) -> list[Refusal]:
    """Return arguments that a cache of rows of 12 bytes rejects."""
    one, two = torch.tensor([1]), torch.tensor([2, 3])
    return [
        (lambda: cache.query(torch.zeros(1)), TypeError,
         "keys must be torch.int32 or torch.int64, but is torch.float32"),
        (lambda: cache.replace(torch.zeros(1), FAR[:1]), TypeError, "keys must be torch.int32 or torch.int64, but is"),
        (lambda: cache.query(torch.tensor([1, -3]), 2), IndexError,
         "keys must be 0 or more with the offset 2, .* is -3"),
        (lambda: cache.replace(torch.tensor([-3]), FAR[:1], offset=2), IndexError,
         "0 or more with the offset 2, .* is -3"),
        (lambda: cache.query_and_replace(torch.tensor([1, -7]), read), IndexError,
         "keys must be 0 or more .* one is -7"),
        (lambda: cache.replace(one, FAR[:2]), ValueError, "values must have one row per key, but has 2 for 1 keys"),
        (lambda: cache.query_and_replace(two, lambda _: FAR[:1]), ValueError, "one row per key, but has 1 for 2 keys"),
        (lambda: cache.query_and_replace(two, lambda keys: FAR[keys].double()), ValueError,
         "must have 12 bytes like those"),
    ]  # fmt: skip


def test_keys_and_rows_are_checked_and_what_is_held_stays() -> None:
    for kind, make in KINDS.items():
        cache = make(5)
        cache.replace(torch.tensor([0, 1]), FAR[:2])
        check_refused(refusals(cache))
        assert torch.equal(cache.query(torch.tensor([0, 1]))[0], FAR[:2]), kind
        assert torch.equal(cache.query_and_replace(torch.tensor([5, 6, 5]), read), FAR[[5, 6, 5]]), kind
    table: list[Refusal] = [
        (lambda: cache_of(4, "fifo"), ValueError, "policy must be one of"),
    ]
    if not torch.cuda.is_available():
        pinned = (lambda: CPUFeatureCache((1, 1), torch.float32, pin_memory=True), ValueError, "finds no CUDA device")
        table.append(pinned)
    check_refused(table)


def cache_of(rows: int, policy: str | None = None) -> CPUFeatureCache:
    """Return a cache of rows like those of `FAR`."""
    return CPUFeatureCache((rows, 3), torch.float32, policy)


@given(
    policy=st.sampled_from(sorted(POLICIES)),
    capacity=st.integers(0, 12),
    batches=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=20),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
@settings(max_examples=60)
def test_rows_are_those_from_afar_and_misses_those_of_the_papers(
    policy: str, capacity: int, batches: list[list[int]], dtype: torch.dtype
) -> None:
    cache, model = cache_of(capacity, policy), Sieve(capacity)
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


def test_query_tells_what_is_missing_and_replace_fills_it_in() -> None:
    cache = cache_of(5)
    cache.replace(torch.tensor([2, 4]), FAR[[2, 4]])
    values, index, keys, offsets = cache.query(torch.tensor([1, 2, 1, 4, 9], dtype=torch.int32))
    assert (index.tolist(), keys.tolist(), offsets.tolist()) == ([0, 2, 4], [1, 1, 9], [0, 3])
    assert keys.dtype == torch.int32
    assert torch.equal(values[[1, 3]], FAR[[2, 4]])
    values[index] = FAR[keys.long()]
    cache.replace(keys, values[index])
    assert cache.query(torch.tensor([1, 9, 2, 4]))[1].tolist() == []
    assert cache.misses == 2


def test_a_forked_process_begins_anew() -> None:
    cache = cache_of(10)
    cache.query_and_replace(torch.tensor([1]), read)
    assert in_child(lambda: len(cache.query(torch.tensor([1]))[1])) == "1"
    assert len(cache.query(torch.tensor([1]))[1]) == 0


@pytest.mark.usefixtures("small_is_shared")
def test_a_forked_process_writes_to_rows_of_its_own() -> None:
    with LockedMemory().installed():  # whose memory forked processes share
        cache = CPUFeatureCache((10, 3), torch.float32, pin_memory=True)
        cache.replace(torch.arange(4), FAR[:4])
        assert (
            in_child(lambda: cache.query_and_replace(torch.arange(4), lambda keys: FAR[keys] + 1)[0, 0]) == "tensor(1.)"
        )
        assert torch.equal(cache.query(torch.arange(4))[0], FAR[:4])


def test_a_pinned_cache_takes_no_more_than_its_bound_and_gives_it_back() -> None:
    """Torch's pinned memory would take a power of two bytes, and not be freed."""
    bound = 5 << 20
    with LockedMemory().installed() as runtime:
        feature = cpu_cached_feature(gf.TorchBasedFeature(FAR.clone()), bound, pin_memory=True)
        for rows in (FAR, FAR.double(), FAR[:2]):
            feature.update(rows)
            (size,) = runtime.locked.values()
            assert size <= bound
        del feature
        gc.collect()
        assert runtime.locked == {}
