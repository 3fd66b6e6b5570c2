"""Mini-batches that are sampled together: the stage, and the rule for graphs larger than the memory."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.sampled_together import PARTS, SampledTogether
from graphfeed.storage.graph import ByType, Together
from graphfeed.storage.graph.sampling import mapped_arrays
from graphfeed.storage.memory import count_bytes, mapped_file
from tests.digests import digests
from tests.loader.stages.test_inserted import APART, BY_THREAD, NODES
from tests.loader.stages.test_inserted import graph as small_graph

pytestmark = pytest.mark.usefixtures("no_leaks")
pytestmark = pytest.mark.usefixtures("fork_server")


class Counted(gf.FusedCSCSamplingGraph):
    """Keeps how many mini-batches were sampled together."""

    counts: list[int]

    def sample_hops_together(self, seeds: Any, request: Any, keys: Any, each: Any = map) -> Any:
        self.counts.append(len(seeds))
        return super().sample_hops_together(seeds, request, keys, each)


def counted() -> Counted:
    counted = Counted(**small_graph().fields())
    vars(counted)["counts"] = []
    return counted


def sampler(graph: gf.SamplingGraph, source: Any = None) -> gf.Datapipe:
    items = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=8, shuffle=True)
    return (items if source is None else source(items)).sample_neighbor(graph, fanouts=[2, 2])


@pytest.mark.parametrize(
    ("num_threads", "windows", "counts"),
    [
        (0, APART, [1, 2, 4, 8, 10]),
        (2, APART, [1, 2, 4, 8, 10]),
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


@pytest.mark.parametrize(("num_threads", "windows"), [(0, APART), (2, APART), (2, BY_THREAD)])
def test_seeds_that_are_not_there_are_an_error_in_the_place_of_their_mini_batch(
    num_threads: int, windows: Together
) -> None:
    def spoil(batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch if batch.key.index != index else gf.MiniBatch(seeds=torch.tensor([NODES]))

    for index in (0, 1, 7):
        pipe = sampler(counted(), lambda items: items.transform(spoil))
        running = RunContext().drive(SampledTogether(pipe, 10, windows, num_threads))
        assert len([next(running) for _ in range(index)]) == index
        with pytest.raises(ValueError, match="seeds"):
            next(running)


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


MAPPED_NODES = 2000


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gf.FusedCSCSamplingGraph:
    """Return a graph in a file that is larger than the memory."""
    monkeypatch.setattr(mapped_file, "LEAST_MAPPED", 0)
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 90_000.0)
    small_graph(MAPPED_NODES).save(tmp_path / "graph")
    return gf.load_graph(tmp_path / "graph")


def pipe_of(graph: gf.SamplingGraph, **options: Any) -> gf.Datapipe:
    items = gf.ItemSampler(gf.ItemSet(MAPPED_NODES, names="seeds"), batch_size=64, shuffle=True)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.arange(MAPPED_NODES)[:, None])})
    pipe = items.sample_neighbor(graph, fanouts=[2, 2], **options)
    return pipe.fetch_feature(store, node_feature_keys=["feat"])


def together(pipe: gf.Datapipe, **options: Any) -> list[Any]:
    return list(find(gf.DataLoader(pipe, **options).plan.running, SampledTogether))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_mini_batches_are_those_that_are_sampled_apart(graph: gf.FusedCSCSamplingGraph, num_workers: int) -> None:
    loader = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    assert "sample_together" in loader.explain()
    assert digests(loader) == digests(gf.DataLoader(pipe_of(graph), num_workers, seed=3, window=0))
    sampled = gf.DataLoader(pipe_of(graph).datapipe, num_workers, seed=3)  # type: ignore[attr-defined]
    assert len(list(sampled)) == len(sampled) == 32
    loader = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    again = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    again.load_state_dict(loader.state_dict())
    assert digests(again) == digests(gf.DataLoader(pipe_of(graph), 0, seed=3, window=0))[4:]


def test_a_window_is_as_large_as_asked_and_as_there_is_memory_for(graph: gf.FusedCSCSamplingGraph) -> None:
    for options, size in (({"window": 5}, 5), ({"window": 500}, 32), ({}, 32)):
        (stage,) = together(pipe_of(graph), num_workers=2, **options)
        assert stage.window == size
        assert stage.together.sample_bytes == 90_000 / 4
    (stage,) = together(pipe_of(graph), num_workers=2, memory_limit=10_000)
    assert stage.together.sample_bytes == 10_000


def test_what_is_not_read_together_is_sampled_apart(
    graph: gf.FusedCSCSamplingGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert together(pipe_of(graph), num_workers=2, window=0) == []
    assert together(pipe_of(graph), num_workers=2, worker="process") == []
    assert together(pipe_of(graph, only_new=True), num_workers=2) == []
    assert together(pipe_of(graph, deduplicate=False), num_workers=2) == []
    assert together(pipe_of(gf.from_coo(([0], [1]), MAPPED_NODES)), num_workers=2) == []
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 200_000.0)
    assert together(pipe_of(graph), num_workers=2) == []
