"""Small mini-batches of a graph in memory are sampled several at a time, with the results of sampling them alone."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader import SampleTogether
from graphfeed.testing import limits
from tests.kinds.digests import digest, digests

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, TYPES = 500, ("user:likes:item", "item:by:user", "user:knows:user")


def graph(kind: type[gf.FusedCSCSamplingGraph] = gf.FusedCSCSamplingGraph) -> gf.FusedCSCSamplingGraph:
    """Return a graph with weights and times, in which every tenth node has no in-edges."""
    numbers = torch.arange(NODES * 6)
    sources, ends = numbers * 7919 % NODES, numbers % NODES
    kept = ends % 10 > 0
    made = gf.from_coo((sources[kept], ends[kept]), NODES)
    made.add_edge_attribute("weight", (torch.arange(made.total_num_edges) % 5).float())
    made.add_edge_attribute("time", torch.arange(made.total_num_edges) * 7 % 1000)
    return kind(**made.fields())


def typed() -> gf.FusedCSCSamplingGraph:
    numbers = torch.arange(900)
    pairs = {name: (numbers * step % NODES, numbers * 7 % NODES) for step, name in enumerate(TYPES, 3)}
    return gf.from_coo(pairs, {"user": NODES, "item": NODES})


def items(seeds: torch.Tensor | None = None) -> Any:
    """Return 63 mini-batches of 8 seeds, some of them equal, and one of 4."""
    nodes = torch.arange(NODES + 8) // 2 * 2 % NODES if seeds is None else seeds
    given = gf.ItemSet((nodes, nodes * 3 % 1000), names=("seeds", "timestamp"))
    return gf.ItemSampler(given, 8, shuffle=seeds is None)


def typed_items() -> Any:
    both = {name: gf.ItemSet(torch.arange(count), names="seeds") for name, count in (("user", 300), ("item", 40))}
    return gf.ItemSampler(gf.HeteroItemSet(both), 8, shuffle=True)


PIPES: dict[str, Callable[[], gf.Datapipe]] = {
    "uniform": lambda: items().sample_neighbor(graph(), [3, 2]),
    "all edges": lambda: items().sample_neighbor(graph(), [2, -1]),
    "replaced": lambda: items().sample_neighbor(graph(), [3, 2], replace=True),
    "weighted": lambda: items().sample_neighbor(graph(), [3, 2], prob_name="weight"),
    "new nodes": lambda: items().sample_neighbor(graph(), [3, 2], only_new=True),
    "trees": lambda: items().sample_neighbor(graph(), [3, 2], disjoint=True),
    "a row per edge": lambda: items().sample_neighbor(graph(), [3, 2], deduplicate=False),
    "LABOR": lambda: items().sample_layer_neighbor(graph(), [3, 2], batch_dependency=3),
    "in time": lambda: items().temporal_sample_neighbor(graph(), [3, 2], edge_timestamp_attr_name="time"),
    "in windows of time": lambda: items().temporal_sample_layer_neighbor(
        graph(), [3, 2], edge_timestamp_attr_name="time", pre_time_window=400
    ),
    "typed": lambda: typed_items().sample_neighbor(typed(), [3, [2, 1, 2]]),
    "typed trees": lambda: typed_items().sample_neighbor(typed(), [[3, 1, 1], [2, 1, 2]], disjoint=True),
    "edges": lambda: gf.ItemSampler(
        gf.ItemSet(torch.arange(400).reshape(200, 2), names="seeds"), 8
    ).sample_uniform_negative(graph(), 2).sample_neighbor(graph(), [3, 2]),
}  # fmt: skip


def windows(pipe: gf.Datapipe, num_workers: int = 0, **options: Any) -> list[Any]:
    return find(gf.DataLoader(pipe, num_workers, **options).plan.running, SampleTogether)


@pytest.mark.parametrize("name", PIPES)
def test_mini_batches_are_those_that_are_sampled_alone_and_an_epoch_resumes_within_a_window(name: str) -> None:
    pipe = PIPES[name]()
    expected = digests(gf.DataLoader(pipe, 0, seed=3, window=0))
    loader = gf.DataLoader(pipe, 0, seed=3)
    assert "sample_together" in loader.explain()
    assert digests(loader) == expected
    left, again = gf.DataLoader(pipe, 0, seed=3), gf.DataLoader(pipe, 0, seed=3)
    for number, _ in enumerate(left):
        if number == 11:
            break
    again.load_state_dict(left.state_dict())
    assert digests(again) == expected[12:]


class Counted(gf.FusedCSCSamplingGraph):
    """Records how many mini-batches are sampled by each call."""

    def sample(self, seeds: Any, request: Any, draws: Any) -> Any:
        vars(self).setdefault("_counts", []).append(len(seeds))
        return super().sample(seeds, request, draws)


def test_windows_grow_and_larger_mini_batches_are_sampled_alone() -> None:
    for num_bytes, largest in ((10 << 20, 32), (1, 1)):
        counted = graph(Counted)
        with limits(window_bytes=num_bytes):
            assert len(list(gf.DataLoader(items().sample_neighbor(counted, [3, 2]), 0))) == 64
        counts = vars(counted)["_counts"]
        assert (counts[0], max(counts), sum(counts)) == (1, largest, 64)


def test_the_hops_of_a_mini_batch_are_freed_before_the_window_ends() -> None:
    seen: list[weakref.ref[Any]] = []
    for minibatch in gf.DataLoader(items().sample_neighbor(graph(), [3, 2]), 0):
        assert [hops() for hops in seen] == [None] * len(seen)
        seen.append(weakref.ref(minibatch.sampled_subgraphs[0]))
    assert len(seen) == 64


def test_few_mini_batches_are_sampled_twice_if_the_loop_edits_the_graph_at_each_step() -> None:
    counted = graph(Counted)
    weights = counted.edge_attribute("weight")
    for _ in gf.DataLoader(items().sample_neighbor(counted, [3, 2]), 0):
        counted.add_edge_attribute("weight", weights)
    assert 64 < sum(vars(counted)["_counts"]) < 80


def test_a_graph_that_the_loop_edits_is_seen_by_the_next_mini_batch() -> None:
    nodes = torch.arange(NODES)
    edited = gf.from_coo((nodes.repeat(4), (nodes.repeat(4) + 1) % NODES), NODES)
    edited.add_edge_attribute("weight", torch.ones(edited.total_num_edges))
    loader = gf.DataLoader(items(nodes).sample_neighbor(edited, [2], prob_name="weight"), 0)
    for number, minibatch in enumerate(loader):
        (hop,) = minibatch.sampled_subgraphs
        assert (len(hop.original_edge_ids) > 0) == (number <= 20)
        if number == 20:
            edited.add_edge_attribute("weight", torch.zeros(edited.total_num_edges))


@pytest.mark.parametrize("window", [None, 0])
def test_negatives_are_no_edges_of_a_graph_that_the_loop_has_edited(window: int | None) -> None:
    nodes = torch.arange(20)
    # Each node has an edge from half of the nodes, later from the other half.
    edited = gf.from_coo((torch.arange(200) % 10, nodes.repeat_interleave(10)), 20)
    pairs = gf.ItemSet(torch.stack([nodes, nodes], 1).repeat(20, 1), names="seeds")
    pipe = gf.ItemSampler(pairs, 8).sample_negative_pairs(edited, "binary", query=gf.NegativeQuery(strict=True))
    loader = gf.DataLoader(pipe.sample_neighbor(edited, [2]), 0, seed=3, window=window)
    for number, minibatch in enumerate(loader):
        sources = minibatch.seeds[minibatch.labels == 0, 0]
        assert minibatch.key.index == number
        assert bool((sources >= 10).all() if number <= 20 else (sources < 10).all())
        if number == 20:
            edited.indices = edited.indices + 10


def test_rows_that_are_fetched_before_sampling_are_those_of_the_last_update() -> None:
    feature = gf.TorchBasedFeature(torch.zeros(NODES, 1))
    store = gf.BasicFeatureStore({("node", None, "state"): feature})
    pipe = items().fetch_feature(store, ["state"]).sample_neighbor(graph(), [2])
    for number, minibatch in enumerate(gf.DataLoader(pipe, 0)):
        assert minibatch.node_features["state"].unique().tolist() == [number]
        feature.update(torch.full((NODES, 1), number + 1.0))


def test_a_stage_of_the_user_before_the_sampler_keeps_step_with_the_loop() -> None:
    seen: list[int] = []

    def note(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        seen.append(minibatch.key.index)
        return minibatch

    pipe = items().transform(note).sample_neighbor(graph(), [2])
    assert windows(pipe) == []
    for number, _ in enumerate(gf.DataLoader(pipe, 0)):
        assert len(seen) == number + 1
    after = items().sample_neighbor(graph(), [2]).transform(note)
    assert len(windows(after)) == 1


class OwnItems:
    """Items that are computed when they are read."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.read = read

    def __len__(self) -> int:
        return NODES

    def __getitem__(self, positions: Any) -> Any:
        self.read()
        return positions


def test_items_and_a_minibatcher_of_the_user_keep_step_with_the_loop() -> None:
    seen: list[None] = []

    def make(rows: Any, names: Any) -> Any:
        seen.append(None)
        return gf.minibatcher_default(rows, names)

    own = gf.ItemSet(OwnItems(lambda: seen.append(None)), names="seeds")
    for source in (gf.ItemSampler(own, 8), gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), 8, make)):
        pipe = source.sample_neighbor(graph(), [2])
        assert windows(pipe) == []
        loader = gf.DataLoader(pipe, 0)
        seen.clear()
        for number, _ in enumerate(loader):
            assert len(seen) == number + 1


class OwnHops(gf.FusedCSCSamplingGraph):
    """Has its own way of sampling all hops."""

    def sample_hops(self, *given: Any, **options: Any) -> Any:
        return super().sample_hops(*given, **options)


def test_what_gains_nothing_is_sampled_alone() -> None:
    pipe = items().sample_neighbor(graph(), [2])
    assert len(windows(pipe)) == 1
    assert windows(pipe, num_workers=2) == windows(pipe, window=0) == windows(pipe, window=1) == []
    assert windows(items().sample_neighbor(graph(OwnHops), [2])) == []
    assert windows(gf.IterableSource(list(items())).sample_neighbor(graph(), [2])) == []


def test_seeds_that_are_not_there_are_an_error_in_the_place_of_their_mini_batch() -> None:
    for index in (0, 1, 9, 40):
        nodes = torch.arange(NODES)
        nodes[8 * index + 3] = NODES + 7
        pipe = items(nodes).sample_neighbor(graph(), [2, 2])
        expected = digests(gf.DataLoader(items(torch.arange(NODES)).sample_neighbor(graph(), [2, 2]), 0, seed=3))
        running = iter(gf.DataLoader(pipe, 0, seed=3))
        assert [digest(next(running)) for _ in range(index)] == expected[:index]
        with pytest.raises(ValueError, match=r"seeds must be in 0 \.\. 499, but holds 507") as caught:
            next(running)
        assert f"in NeighborSampler, stage 2, mini-batch {index} of epoch 0" in caught.value.__notes__[0]


def test_a_profile_shows_the_time_of_sampling_with_the_sampler() -> None:
    loader = gf.DataLoader(items().sample_neighbor(graph(), [3, 2]), 0)
    with loader.profile() as profile:
        list(loader)
    spans = [span for record in profile.records for span in record.spans if span.name == "NeighborSampler"]
    assert len(spans) == 64
    # The first one and the last one are sampled alone.
    assert sum(span.own > span.end - span.begin for span in spans) == 62
