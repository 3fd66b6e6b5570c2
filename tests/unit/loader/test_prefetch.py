"""A thread that works ahead of its reader, the channel between the two, and the thread's own stream."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import InWorkers, Prefetch, RunContext
from graphfeed.loader.transport import Closed
from graphfeed.loader.transport.streams import parts_on_streams
from graphfeed.loader.transport.thread_channel import ThreadChannel
from graphfeed.ops.memory import buffers
from graphfeed.storage.memory.tensor_tree import TOGETHER_BYTES
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.stand_ins.emulated_cuda import Cuda, device_of
from tests.stand_ins.late_streams import Event, current_stream, late_streams, running
from tests.stand_ins.waiting import HangAtTheSecond, wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_what_is_in_a_closed_channel_can_be_read() -> None:
    channel = ThreadChannel(capacity=1)
    channel.put("last")
    channel.close()
    assert channel.get(1) == "last"
    with pytest.raises(Closed):
        channel.get(1)


def test_an_iterable_that_is_no_stage_is_read_ahead() -> None:
    source: Any = [1, 2, 3]
    found: Any = list(gf.PrefetcherIterDataPipe(source, 2))
    assert found == [1, 2, 3]


class Numbers(gf.Datapipe[int]):
    """Counts, and records how far it got and in which thread."""

    count: int
    seen: list[Any]

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.seen.append((number, threading.current_thread().name))
            yield number

    def __len__(self) -> int:
        return self.count


def test_it_runs_ahead_by_its_buffer_and_no_further() -> None:
    source = Numbers(100, [])
    items = iter(Prefetch(source, buffer_size=3))
    next(items)
    wait_until(lambda: len(source.seen) >= 4)
    time.sleep(0.05)  # more than the buffer's size would arrive now
    assert len(source.seen) in (4, 5)
    del items


@limits(join_seconds=0.0)
def test_a_slow_stage_times_out_with_advice() -> None:
    release = threading.Event()

    class Slow(gf.Datapipe[int]):
        def __iter__(self) -> Iterator[int]:
            release.wait(60)
            yield 0

    items = iter(Prefetch(Slow(), timeout_seconds=0.05))
    with (
        pytest.warns(RuntimeWarning, match="abandoned 1 thread still at work: graphfeed-prefetch is at threading.py"),
        pytest.raises(TimeoutError, match=r"produced no mini-batch for 0\.05 s \(graphfeed-prefetch .*larger timeout"),
    ):
        next(items)
    release.set()


def test_a_loop_that_is_left_does_not_wait_for_workers() -> None:
    hang = HangAtTheSecond()
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=1).transform(hang)
    with ThreadPoolExecutor(1) as executor:
        items = RunContext(executor).drive(Prefetch(InWorkers(pipe, num_workers=1, in_flight=2)))
        next(items)
        items.close()
        left = [thread.name for thread in threading.enumerate() if thread.name == "graphfeed-prefetch"]
        hang.release.set()
    assert not left


class Dropping(gf.Datapipe[int]):
    """Drops the last reference to the reader in the thread that runs it."""

    held: list[Iterator[Any]]
    reading: threading.Event

    def __iter__(self) -> Iterator[int]:
        yield 0
        self.reading.wait(10)
        self.held.clear()
        yield 1


def test_an_iterator_that_its_own_thread_collects_says_nothing() -> None:
    held: list[Iterator[Any]] = []
    reading = threading.Event()
    held.append(iter(Prefetch(Dropping(held, reading))))
    assert next(held[0]) == 0
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "graphfeed-prefetch"]
    unraisable: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        reading.set()
        thread.join(10)
    finally:
        sys.unraisablehook = hook
    assert not unraisable
    assert not thread.is_alive()


Log = list[tuple[Any, ...]]
OVERLAPS: list[dict[str, Any]] = [
    {"overlap_feature_fetch": feature, "overlap_graph_fetch": graph}
    for feature in (None, True, False)
    for graph in (None, True)
]


@pytest.fixture
def log() -> Iterator[Log]:
    with late_streams() as log:
        yield log


def back(minibatches: Any) -> list[str]:
    return [digest(minibatch.to("cpu")) for minibatch in minibatches]


def test_copies_that_happen_late_are_there_when_they_are_used(log: Log) -> None:
    for build in (pipelines.homogeneous, pipelines.heterogeneous, pipelines.typed_negatives):
        pipe = build()
        log.clear()
        with gf.DataLoader(pipe.copy_to("meta"), 2, seed=3) as loader:
            assert [back(loader), back(loader)] == [digests(pipe.with_seed(3, epoch)) for epoch in range(2)]
        assert any(entry[1] == "copies" for entry in log)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_threads_write_large_results_to_pinned_memory_that_is_copied_once(log: Log, dtype: torch.dtype) -> None:
    nodes, made = 6000, torch.Generator().manual_seed(1)
    numbers = torch.arange(nodes, dtype=dtype)
    sources = torch.randint(0, nodes, (nodes * 20,), generator=made).to(dtype)
    graph = gf.from_coo((sources, numbers.repeat(20)), nodes)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.rand(nodes, 16, generator=made))})
    pipe = gf.ItemSampler(gf.ItemSet(numbers, names="seeds"), batch_size=3000)
    pipe = pipe.sample_neighbor(graph, [15, 15]).fetch_feature(store, ["feat"])
    expected, copied, pin = digests(pipe.with_seed(3)), list[int](), torch.Tensor.pin_memory

    def pinned(own: torch.Tensor) -> torch.Tensor:
        found = pin(own)
        if found is not own:
            copied.append(own.nbytes)
        return found

    with patch.object(torch.Tensor, "pin_memory", pinned), gf.DataLoader(pipe.copy_to("meta"), 2, seed=3) as loader:
        assert back(loader) == expected
        assert max(copied) < TOGETHER_BYTES, "only small tensors were pinned by a copy"
        loader.set_epoch(0)
        minibatch = next(iter(loader))
        parts = parts_on_streams(minibatch)
        assert len(parts) == 4, "sources and positions of both hops, features, and small tensors"
    assert not buffers.PINNING.get()


def large(nodes: int = 6000) -> Any:
    """Return a pipeline of two mini-batches whose features are above the size of those that are copied together."""
    made, numbers = torch.Generator().manual_seed(1), torch.arange(nodes)
    graph = gf.from_coo((torch.randint(0, nodes, (nodes * 20,), generator=made), numbers.repeat(20)), nodes)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.rand(nodes, 32, generator=made))})
    pipe = gf.ItemSampler(gf.ItemSet(numbers, names="seeds"), batch_size=nodes // 4)
    return pipe.sample_neighbor(graph, [5]).fetch_feature(store, ["feat"])


def without_first(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Replace features by a view of their array, of which torch knows nothing."""
    found = {name: torch.from_numpy(rows.numpy()[1:]) for name, rows in (minibatch.node_features or {}).items()}
    return replace(minibatch, node_features=found)


def test_arrays_over_pinned_results_are_not_reused_before_they_are_copied(log: Log) -> None:
    pipe = large().transform(without_first)
    expected = digests(pipe.with_seed(3))
    with gf.DataLoader(pipe.copy_to("meta"), 2, seed=3) as loader:
        assert back(loader) == expected


def test_a_loader_pins_no_results_of_another_one_and_none_of_its_caller(log: Log) -> None:
    def is_pinned(minibatch: gf.MiniBatch) -> bool:
        (rows,) = minibatch.node_features.values()
        return rows.is_pinned()

    def note(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        pinned.append(is_pinned(minibatch))
        return minibatch

    pinned, noted = list[bool](), large().transform(note)
    with gf.DataLoader(noted.copy_to("meta"), 2, seed=3) as loader, gf.DataLoader(large(), 2, seed=3) as other:
        for _, here in zip(loader, other, strict=True):
            assert not is_pinned(here)
            assert not buffers.empty(1 << 16, torch.int64).is_pinned()
    assert pinned == [True] * 4


def test_the_caller_s_stream_waits_behind_the_copies_and_is_known_to_the_allocator(log: Log) -> None:
    with gf.DataLoader(pipelines.homogeneous().copy_to("meta"), 2, seed=3) as loader:
        minibatches = iter(loader)
        first = next(minibatches)
        parts = parts_on_streams(first)
        assert [part.used_on for part in parts] == [{"caller"}]  # one for all: they share a block
        start, after = log.index(("side 1", "copies")), log.index(("caller", "waits for", "side 1"))
        assert ("side 1", "waits for", "caller") in log[:start]
        assert ("side 1", "records") in log[start:after]
        del minibatches


def test_a_caller_that_only_asks_is_not_far_ahead_of_its_device(log: Log) -> None:
    items = gf.ItemSampler(gf.ItemSet(200, names="seeds"), batch_size=10)
    steps: list[Event] = []
    with gf.DataLoader(items.copy_to("meta"), 1, seed=3) as loader:
        for _ in loader:
            assert sum(not step.query() for step in steps) <= 3
            steps.append(current_stream().record_event())
    assert len(steps) == 20


def sampled_there(cuda: Cuda) -> tuple[gf.Datapipe, gf.Datapipe]:
    """Return a pipeline that samples on a device, and the same pipeline on the CPU."""
    return pipelines.moved(pipelines.homogeneous(), device_of(cuda)), pipelines.homogeneous()


def test_overlap_changes_no_bits(cuda: Cuda) -> None:
    for options in OVERLAPS:
        with running(cuda):
            there, here = sampled_there(cuda)
            with gf.DataLoader(there, seed=3, **options) as loader:
                assert loader.num_workers == 0
                assert back(loader) == digests(here.with_seed(3)), options


@pytest.mark.gpu
@pytest.mark.parametrize("build", pipelines.ALL)
def test_mini_batches_are_right_while_memory_is_used_again(build: Any) -> None:
    """The caller frees and allocates memory of the sizes of mini-batches, and reads slowly."""
    pipe = build()
    expected = digests(pipe.with_seed(3))
    with gf.DataLoader(pipe.copy_to("cuda"), 2, seed=3) as loader:
        for _ in range(5):
            loader.set_epoch(0)
            found = []
            for minibatch in loader:
                torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
                copies = [part.clone() for part in parts_on_streams(minibatch)]
                junk = [torch.full_like(part, 7) for part in copies]
                kept = minibatch.to("cpu")
                del junk, copies
                found.append(digest(kept))
            assert found == expected


@pytest.mark.gpu
def test_the_allocator_gives_nothing_away_that_the_caller_still_reads() -> None:
    """Pending work of the caller reads the mini-batch after its tensors are freed."""
    rows = torch.arange(200_000.0).reshape(-1, 100)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
    items = gf.ItemSampler(gf.ItemSet(2000, names="seeds"), batch_size=100)
    sums = []
    with gf.DataLoader(items.fetch_feature(store, ["feat"]).copy_to("cuda"), 2, seed=0) as loader:
        for minibatch in loader:
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            sums.append(minibatch.node_features["feat"].sum())
            del minibatch
    expected = [rows[start : start + 100].sum() for start in range(0, 2000, 100)]
    assert torch.allclose(torch.stack(sums).cpu(), torch.stack(expected))


@pytest.mark.gpu
def test_the_caller_s_own_stream_is_the_one_that_waits() -> None:
    pipe = pipelines.homogeneous()
    with torch.cuda.stream(torch.cuda.Stream()), gf.DataLoader(pipe.copy_to("cuda"), 2, seed=3) as loader:  # type: ignore[no-untyped-call]
        assert back(loader) == digests(pipe.with_seed(3))


@pytest.mark.gpu
def test_pinned_graphs_and_features_are_read_ahead() -> None:
    there: Any = pipelines.homogeneous()
    sampler, here = pipelines.sampler_of(there), pipelines.homogeneous()
    sampler.graph.pin_memory_()
    there.feature_store["node", None, "feat"].pin_memory_()
    sampled = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph, sampler.fanouts)
    pipe = sampled.fetch_feature(there.feature_store, ["feat"])
    for options in OVERLAPS:
        with gf.DataLoader(pipe, seed=3, max_uva_threads=512, **options) as loader:
            assert back(loader) == digests(here.with_seed(3))
