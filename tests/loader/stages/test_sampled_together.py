import math
import threading
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.sampled_together import PARTS, SampledTogether
from graphfeed.storage.graph import ByType, Together
from graphfeed.storage.memory import count_bytes
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES = 200
SHARED, BY_THREAD = Together(math.inf, by_thread=False), Together(math.inf, by_thread=True)


class Counted(gf.FusedCSCSamplingGraph):
    """Keeps how many mini-batches were sampled together."""

    counts: list[int]

    def sample_hops_together(self, seeds: Any, request: Any, keys: Any, each: Any = map) -> Any:
        self.counts.append(len(seeds))
        return super().sample_hops_together(seeds, request, keys, each)


def counted() -> Counted:
    numbers = torch.arange(NODES)
    sources = torch.cat([numbers * 7, numbers * 11, numbers + 1]) % NODES
    graph = Counted(**gf.from_coo((numbers.repeat(3), sources), num_nodes=NODES).fields())
    vars(graph)["counts"] = []
    return graph


def sampler(graph: gf.SamplingGraph, source: Any = None) -> gf.Datapipe:
    items = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=8, shuffle=True)
    return (items if source is None else source(items)).sample_neighbor(graph, fanouts=[2, 2])


@pytest.mark.parametrize(
    ("num_threads", "windows", "counts"),
    [
        (0, SHARED, [1, 2, 4, 8, 10]),
        (2, SHARED, [1, 2, 4, 8, 10]),
        (0, BY_THREAD, [1, 2, 4, 8, 10]),
        (2, BY_THREAD, [1, 1, 2, 4, 8, 9]),
    ],
)
def test_mini_batches_are_those_of_the_sampler_alone(num_threads: int, windows: Together, counts: list[int]) -> None:
    graph = counted()
    pipe = sampler(graph)
    together = SampledTogether(pipe, 10, windows, num_threads)
    assert digests(together) == digests(pipe)
    assert len(together) == 25
    # Two windows are sampled at the same time, and the next one is as large as the one before both lets it be.
    assert sorted(graph.counts) == sorted(counts)


def test_windows_grow_as_far_as_there_is_memory_for_samples() -> None:
    graph = counted()
    pipe = sampler(graph)
    largest = max(count_bytes(minibatch.sampled_subgraphs) for minibatch in pipe)
    for sample_bytes, counts in ((0, [1] * 25), (PARTS * 4 * largest, [1, 2, 4, 4])):
        graph.counts.clear()
        assert digests(SampledTogether(pipe, 10, Together(sample_bytes, by_thread=False))) == digests(pipe)
        assert graph.counts[: len(counts)] == counts


def fail_at(index: int, batch: gf.MiniBatch) -> gf.MiniBatch:
    assert batch.key is not None
    if batch.key.index == index:
        raise ValueError("no")
    return batch


@pytest.mark.parametrize("index", [0, 1, 7])
@pytest.mark.parametrize(("num_threads", "windows"), [(0, SHARED), (2, SHARED), (2, BY_THREAD)])
def test_a_failure_comes_in_the_place_of_its_mini_batch(index: int, num_threads: int, windows: Together) -> None:
    def fail_early(items: gf.Datapipe) -> gf.Datapipe:
        return items.transform(lambda batch: fail_at(index, batch))

    def bad_seeds(items: gf.Datapipe) -> gf.Datapipe:
        return items.transform(lambda batch: spoil(index, batch))

    for source, message in ((fail_early, "no"), (bad_seeds, "seeds")):
        running = RunContext().drive(SampledTogether(sampler(counted(), source), 10, windows, num_threads))
        assert len([next(running) for _ in range(index)]) == index
        with pytest.raises(ValueError, match=message):
            next(running)


def spoil(index: int, batch: gf.MiniBatch) -> gf.MiniBatch:
    assert batch.key is not None
    if batch.key.index == index:
        batch.seeds = torch.tensor([NODES])
    return batch


@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_an_epoch_that_is_left_early_harms_none_that_follows(left: int) -> None:
    pipe = sampler(counted())
    together = SampledTogether(pipe, 10, num_threads=2)
    running = RunContext().drive(together)
    for _ in range(left):
        next(running)
    running.close()
    assert digests(together) == digests(pipe)


def test_a_loop_that_is_left_samples_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, started, going = counted(), threading.Event(), threading.Event()
    alone: list[Any] = []

    def wait(_: Any) -> None:
        started.set()
        going.wait(60)

    def read(seeds: Any, request: Any, keys: Any, each: Any) -> Any:
        return list(each(wait, seeds))

    monkeypatch.setitem(vars(graph), "sample_hops_together", read)
    monkeypatch.setitem(vars(graph), "sample_hops", lambda *given: alone.append(given))
    run = RunContext()
    reader = threading.Thread(target=list, args=(run.drive(SampledTogether(sampler(graph), 10, num_threads=1)),))
    reader.start()
    assert started.wait(60)
    run.cancel()
    going.set()
    reader.join(30)
    assert not reader.is_alive()
    assert alone == []


class Asking(gf.NeighborSampler):
    """Asks its graph for more than all hops."""

    def sample_hops(self, seeds: ByType) -> list[gf.SampledSubgraph]:
        nodes = torch.arange(int(self.graph.num_nodes))  # type: ignore[arg-type]
        hop: Any = self.graph.sample_neighbors(nodes, torch.tensor([-1]))
        assert torch.equal(hop.sampled_csc.indices, self.graph.indices)  # type: ignore[attr-defined]
        assert self.graph.num_edges == len(hop.original_edge_ids)
        return super().sample_hops(seeds)


class Silent(gf.NeighborSampler):
    """Asks its graph for nothing."""

    def sample_subgraphs(self, seeds: ByType, *_: Any) -> Any:
        return seeds, []


@pytest.mark.parametrize("kind", [Asking, Silent])
def test_samplers_may_ask_for_more_and_for_less(kind: type[gf.NeighborSampler]) -> None:
    items = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=8, shuffle=True)
    pipe = kind(items, counted(), [2, 2])
    assert digests(SampledTogether(pipe, 10)) == digests(pipe)


def test_an_epoch_may_be_empty() -> None:
    items = gf.ItemSampler(gf.ItemSet(5, names="seeds"), batch_size=8, drop_last=True)
    assert list(SampledTogether(items.sample_neighbor(counted(), fanouts=[2]), 10, num_threads=1)) == []
