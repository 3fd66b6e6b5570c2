"""Mini-batches whose graph and features are on a GPU are started ahead by the caller's thread."""

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes import move_together
from graphfeed.loader import LoaderOptions, make_plan
from graphfeed.loader.stages import IssueAhead, issue_ahead
from tests.kinds.digests import digest, digests
from tests.stand_ins import emulated_cuda
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, device_of, import_launch
from tests.stand_ins.emulated_runtime import Stream
from tests.stand_ins.failures import takes_memory

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, BATCH = 120, 10
SEEDS = torch.arange(NODES) * 7 % NODES


def graph() -> gf.FusedCSCSamplingGraph:
    """Return a graph with three in-edges per node."""
    numbers = torch.arange(NODES)
    return gf.from_coo((numbers.repeat(3), torch.cat([numbers * 7, numbers * 11, numbers + 1]) % NODES), NODES)


def pipe(there: Any = None, put: Any = None, seeds: torch.Tensor = SEEDS, sampler: str = "sample_neighbor") -> Any:
    """Return a pipeline of 12 mini-batches, on the CPU or on a device."""
    rows = torch.arange(2.0 * NODES).reshape(NODES, 2)
    items = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=BATCH)
    own, feature = graph(), gf.TorchBasedFeature(rows if put is None else put(rows))
    if there is not None:
        items, own = items.copy_to(there), own.to(there)
    store = gf.BasicFeatureStore({("node", None, "feat"): feature})
    return getattr(items, sampler)(own, [2, 3]).fetch_feature(store, ["feat"])


def is_ahead(planned: Any) -> bool:
    return bool(gf.find(make_plan(planned, LoaderOptions()).running, IssueAhead))


@pytest.mark.parametrize("pins", ["graph", "features", "both"])
def test_what_is_pinned_is_read_ahead_too(cuda: Cuda, pins: str) -> None:
    expected = digests(pipe().with_seed(3))
    with cuda.running():
        there: Any = pipe(device_of(cuda), cuda.put if pins == "graph" else cuda.pin)
        sampled = there.datapipe
        if pins != "features":
            sampled = sampled.datapipe.sample_neighbor(graph().pin_memory_(), [2, 3])
        pinned = sampled.fetch_feature(there.feature_store, ["feat"])
        assert is_ahead(pinned)
        with gf.DataLoader(pinned, seed=3) as loader:
            assert list(map(back, loader)) == expected


@pytest.mark.parametrize("sampler", ["sample_neighbor", "sample_layer_neighbor"])
def test_minibatches_are_those_of_the_cpu_in_each_epoch_and_in_two_at_once(cuda: Cuda, sampler: str) -> None:
    here = pipe(sampler=sampler)
    expected = [digests(here.with_seed(3, epoch)) for epoch in range(2)]
    with cuda.running():
        there = pipe(device_of(cuda), cuda.put, sampler=sampler)
        assert is_ahead(there)
        with gf.DataLoader(there, seed=3) as loader, gf.DataLoader(there, seed=3) as other:
            threads = threading.active_count()
            both = [(back(own), back(its)) for own, its in zip(loader, other, strict=True)]
            assert both == list(zip(expected[0], expected[0], strict=True))
            assert threading.active_count() == threads, "it needs no thread"
            assert [back(own) for own in loader] == expected[1]


def back(minibatch: Any) -> str:
    return digest(minibatch.to("cpu"))


def test_nothing_waits_for_sizes_and_two_minibatches_have_begun_before_one_is_finished(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device doesn't tell what was started")
    with cuda.running(), gf.DataLoader(pipe(device_of(cuda), cuda.put), seed=3) as loader:
        cuda.launches.clear()
        cuda.waits.clear()
        minibatches = iter(loader)
        next(minibatches)
        names = [name for name, _ in cuda.launches]
        assert names.count("fill_plain_neighbors") == 6, "two hops of each of three mini-batches"
        assert names.count("copy_rows") == 3, "ids of the edges of two hops, and rows, of the first one"
        for _ in minibatches:
            pass
        assert cuda.waits == []


@pytest.mark.parametrize("fails", [False, True])
def test_small_minibatches_are_copied_together_unless_that_fails(cuda: Cuda, fails: bool) -> None:
    expected, together = digests(pipe().with_seed(3)), list[int]()

    def move(minibatches: Sequence[gf.MiniBatch], device: Any, **options: bool) -> None:
        together.append(len(minibatches))
        if fails:
            raise torch.cuda.OutOfMemoryError
        assert options == {"non_blocking": True, "pin_first": True}
        move_together(minibatches, device, **options)

    with cuda.running(), gf.DataLoader(pipe(device_of(cuda), cuda.put), seed=3) as loader:
        with patch.object(issue_ahead, "move_together", move):
            assert list(map(back, loader)) == expected
        assert together == [12]
        together.clear()
        with patch.object(issue_ahead, "move_together", move), patch.object(issue_ahead, "BYTES_TOGETHER", 250):
            loader.set_epoch(0)
            assert list(map(back, loader)) == expected
        assert together == [3] * 4


def test_a_seed_out_of_range_fails_in_the_place_of_its_minibatch(cuda: Cuda) -> None:
    seeds = SEEDS.clone()
    seeds[4 * BATCH + 2] = NODES
    expected = digests(pipe().with_seed(3))[:4]
    with cuda.running(), gf.DataLoader(pipe(device_of(cuda), cuda.put, seeds), seed=3) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            found: list[str] = []
            with pytest.raises(ValueError, match=r"seeds must be in 0 \.\. 119, but holds 120") as caught:
                found.extend(map(back, loader))
            assert found == expected
            assert "stage 3, mini-batch 4 of epoch 0, in the main thread" in caught.value.__notes__[0]


def test_an_epoch_that_is_left_early_harms_none_that_follows(cuda: Cuda) -> None:
    expected = digests(pipe().with_seed(3))
    with cuda.running(), gf.DataLoader(pipe(device_of(cuda), cuda.put), seed=3) as loader:
        for left in (1, 2, 5):
            loader.set_epoch(0)
            minibatches = iter(loader)
            assert [back(next(minibatches)) for _ in range(left)] == expected[:left]
            minibatches.close()  # type: ignore[attr-defined]
        loader.set_epoch(0)
        assert list(map(back, loader)) == expected


class OwnSampler(gf.NeighborSampler, name="sample_own"):
    """Has a method of its own."""

    def sample_hops(self, seeds: Any) -> Any:
        return super().sample_hops(seeds)


def test_a_thread_runs_ahead_of_what_may_wait_for_something_else(cuda: Cuda) -> None:
    with cuda.running():
        device = device_of(cuda)
        there: Any = pipe(device, cuda.put)
        sampled = there.datapipe
        fetched = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.ones(NODES, 1))})
        for other in (
            sampled.fetch_feature(fetched, ["feat"]),  # features on the CPU
            there.datapipe.datapipe.sample_neighbor(sampled.graph, [-1, 2]).fetch_feature(
                there.feature_store, ["feat"]
            ),
            OwnSampler(sampled.datapipe, sampled.graph, [2, 3]).fetch_feature(there.feature_store, ["feat"]),
            sampled.transform(lambda minibatch: minibatch).fetch_feature(there.feature_store, ["feat"]),
            sampled.datapipe.sample_neighbor(graph(), [2, 3]).fetch_feature(there.feature_store, ["feat"]),
        ):
            assert not is_ahead(other)
            assert "StreamPrefetch" in gf.DataLoader(other).explain()


def test_a_minibatch_costs_few_calls_and_little_memory(cuda: Cuda) -> None:
    """The counts of the real PyTorch are printed by `python -m benchmarks.gpu_host_time`."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device doesn't tell what was asked of it")
    calls, counts, run = Counter[str](), Counter[str](), emulated_cuda.run
    launch, package = import_launch(), str(Path(gf.__file__).parent)
    start = launch.start_all

    def note(frame: Any, event: str, _argument: object) -> None:
        calls[event] += frame.f_code.co_filename.startswith(package)

    def counted_run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        counts["allocations"] += takes_memory(func, args, kwargs)
        return run(func, args, kwargs)

    def counted_start(*given: Any) -> None:
        counts["calls of the driver"] += 1
        start(*given)

    with cuda.running(), gf.DataLoader(pipe(device_of(cuda), cuda.put), seed=3) as loader:
        minibatches = iter(loader)
        for _ in range(3):  # those that are recorded
            next(minibatches)
        Stream.log.clear()
        with (
            patch.object(emulated_cuda, "run", counted_run),
            patch.object(launch, "start_all", counted_start),
            patch.object(import_launch("launch_table"), "start_all", counted_start),
        ):
            sys.setprofile(note)
            for _ in range(4):
                next(minibatches)
            sys.setprofile(None)
        events = sum("records" in entry for entry in Stream.log)
        for _ in minibatches:
            pass
    # The launches of both hops in one call; then the ids of their edges, and the rows.
    assert counts == {"calls of the driver": 4 * 4, "allocations": 4 * 5}
    assert events == 4 * 3
    assert calls["call"] <= 4 * 245
    assert calls["c_call"] <= 4 * 420
