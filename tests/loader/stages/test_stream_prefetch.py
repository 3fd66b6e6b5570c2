"""Streams of the loader: on late ones, and on a device where there is one."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.transport.streams import parts_on_streams
from tests import pipelines
from tests.digests import digest, digests
from tests.loader.late_streams import Event, current_stream, late_streams, running
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of

pytestmark = pytest.mark.usefixtures("no_leaks")

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


def test_what_is_fetched_ahead_is_made_on_its_own_streams(log: Log) -> None:
    with gf.DataLoader(pipelines.homogeneous().copy_to("meta"), 2, seed=3) as loader:
        list(loader)
        list(loader)
    assert {entry[0] for entry in log if entry[1] == "copies"} == {"side 1"}
    assert ("side 2", "records") not in log  # an epoch takes no stream of its own


def test_a_caller_that_only_asks_is_not_far_ahead_of_its_device(log: Log) -> None:
    items = gf.ItemSampler(gf.ItemSet(200, names="seeds"), batch_size=10)
    steps: list[Event] = []
    with gf.DataLoader(items.copy_to("meta"), 1, seed=3) as loader:
        for _ in loader:
            assert sum(not step.query() for step in steps) <= 3
            steps.append(current_stream().record_event())
    assert len(steps) == 20


def sampled_there(cuda: Cuda) -> tuple[gf.Datapipe, gf.Datapipe]:
    """Return a pipeline that samples on a device, and the same on the CPU."""
    return pipelines.moved(pipelines.homogeneous(), device_of(cuda)), pipelines.homogeneous()


def test_overlap_changes_no_bits(cuda: Cuda) -> None:
    for options in OVERLAPS:
        with running(cuda):
            there, here = sampled_there(cuda)
            with gf.DataLoader(there, seed=3, **options) as loader:
                assert loader.num_workers == 0
                assert back(loader) == digests(here.with_seed(3)), options


def test_streams_wait_for_each_other_in_the_order_of_the_stages(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device does not tell who waits")
    with cuda.running(), late_streams() as log:
        there, _ = sampled_there(cuda)
        with gf.DataLoader(there, seed=3, overlap_graph_fetch=True) as loader:
            (first, *_) = list(loader)
        feature, graph = "side 1", "side 2"
        assert {entry[0] for entry in log if entry[1] == "copies"} == {graph}
        waits = {entry for entry in log if entry[1] == "waits for"}
        started = {(feature, "waits for", "caller"), (graph, "waits for", feature)}
        assert waits == {*started, (feature, "waits for", graph), ("caller", "waits for", feature)}
        assert {frozenset(part.used_on) for part in parts_on_streams(first)} == {
            frozenset({"caller"}),  # features are made on the stream that fetches
            frozenset({"caller", feature}),
        }


@pytest.mark.gpu
@pytest.mark.parametrize("build", pipelines.ALL)
def test_mini_batches_are_right_while_memory_is_used_again(build: Any) -> None:
    """The caller frees and takes memory of the sizes of mini-batches, and is slow to read."""
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
    """What the caller has asked for but not done reads the mini-batch after its tensors are gone."""
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
