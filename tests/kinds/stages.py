"""All kinds of stages: those of the library, each at the end of a pipeline, and some in the style of users."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.pipelines import random_edges

with_torch_workers = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",  # more workers than the machine has cores
    "ignore:This process .* is multi-threaded:DeprecationWarning",
)


def seeds_of(minibatch: gf.MiniBatch) -> torch.Tensor:
    return minibatch.seeds


def shifted(minibatch: gf.MiniBatch, by: int) -> gf.MiniBatch:
    """Return another mini-batch with larger seeds."""
    return gf.MiniBatch(seeds=seeds_of(minibatch) + by, key=minibatch.key)


class ByMethod(gf.MiniBatchTransformer):
    """GraphBolt's idiom: the work is done by a method that is passed to the base."""

    def __init__(self, datapipe: gf.Datapipe, by: int) -> None:
        super().__init__(datapipe, self._work)
        self.by = by

    def _work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by)


class ByFields(gf.Transform):
    """Fields and one method, like the library's own stages."""

    by: int
    again: int = 1

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by * self.again)


class ByInit(gf.Transform):
    """An ordinary class."""

    def __init__(self, datapipe: gf.Datapipe, by: int) -> None:
        super().__init__(datapipe)
        self.by = by

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by)


class InPairs(gf.Datapipe):
    """Not one to one: joins two mini-batches."""

    datapipe: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.datapipe)
        for first in source:
            second = next(source, first)
            yield gf.MiniBatch(seeds=torch.cat([seeds_of(first), seeds_of(second)]), key=first.key)


class Odd(gf.Datapipe):
    """An ordinary class that drops mini-batches."""

    def __init__(self, source: Iterable[Any], name: str = "odd") -> None:
        self.source = source
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        for place, minibatch in enumerate(self.source):
            if place % 2:
                yield minibatch


class Join(gf.Datapipe):
    """Two inputs."""

    left: gf.Datapipe
    right: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        for left, right in zip(self.left, self.right, strict=True):
            yield gf.MiniBatch(seeds=torch.cat([seeds_of(left), seeds_of(right)]), key=left.key)


class Chained(gf.Datapipe):
    """Any number of inputs, in a tuple."""

    parts: tuple[gf.Datapipe, ...]

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from part


def make_items(count: int = 10, batch_size: int = 2, shuffle: bool = False) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=batch_size, shuffle=shuffle)


def make_join() -> Join:
    """Return a pipeline that forks and joins: both branches read from one source."""
    source = make_items()
    return Join(ByFields(source, 100), ByMethod(source, 200))


USERS: dict[str, Callable[[], gf.Datapipe]] = {
    "by method": lambda: ByMethod(make_items(), 5),
    "by fields": lambda: ByFields(make_items(), 5, again=2),
    "by init": lambda: ByInit(make_items(), 5),
    "in pairs": lambda: InPairs(make_items()),
    "odd": lambda: Odd(make_items()),
    "join": make_join,
    "chained": lambda: Chained((make_items(4), ByInit(make_items(4), 50))),
    "deep": lambda: ByMethod(InPairs(ByInit(ByFields(make_items(20, shuffle=True), 1), 2)), 3),
}
"""A pipeline with each of them."""


def seeds_in(pipe: Iterable[Any]) -> list[list[int]]:
    """Run a pipeline and return the seeds of each mini-batch."""
    return [seeds_of(minibatch).tolist() for minibatch in pipe]


NUM_NODES, NUM_EDGES = 20_000, 200_000
BATCHES = 5


@cache
def graph() -> gf.FusedCSCSamplingGraph:
    """Return a graph of some megabytes."""
    weights = torch.rand(NUM_EDGES, generator=torch.Generator().manual_seed(0))
    times = torch.randperm(NUM_EDGES, generator=torch.Generator().manual_seed(3))
    attributes = {"w": weights, "time": times}
    return gf.from_coo(random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 0), NUM_NODES, edge_attributes=attributes)


@cache
def features() -> gf.BasicFeatureStore:
    """Return some megabytes of features."""
    return gf.BasicFeatureStore(
        {
            ("node", None, "feat"): gf.TorchBasedFeature(torch.arange(NUM_NODES * 20.0).reshape(NUM_NODES, 20)),
            ("edge", None, "row"): gf.TorchBasedFeature(torch.arange(NUM_EDGES)[:, None]),
        }
    )


def add_degree(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Give each seed a label."""
    labels = graph().csc_indptr.diff()[minibatch.seeds]
    return gf.MiniBatch(seeds=minibatch.seeds, labels=labels, key=minibatch.key)


class Waiting(gf.MiniBatch):
    """A mini-batch with a pending result."""

    def wait(self) -> None:
        self.labels = None


def begin(minibatch: gf.MiniBatch) -> Waiting:
    """Start something."""
    return Waiting(seeds=minibatch.seeds, labels=minibatch.seeds, key=minibatch.key)


def ranked_items() -> gf.Datapipe:
    """Return the share of one rank of two."""
    item_set = gf.ItemSet(torch.arange(NUM_NODES), names="seeds")
    size = NUM_NODES // BATCHES // 2 + 1
    return gf.DistributedItemSampler(item_set, batch_size=size, shuffle=True, rank=1, world_size=2)


def labelled_items() -> gf.Datapipe:
    ids = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(1))
    item_set = gf.ItemSet((ids, ids * 2), names=("seeds", "labels"))
    return gf.ItemSampler(item_set, batch_size=NUM_NODES // BATCHES + 1, shuffle=True)


def timed_items() -> gf.Datapipe:
    item_set = gf.ItemSet((torch.arange(1000), torch.arange(1000) * 200), names=("seeds", "timestamp"))
    return gf.ItemSampler(item_set, batch_size=1000 // BATCHES, shuffle=True)


def timed_pairs() -> gf.Datapipe:
    pairs = random_edges(NUM_NODES, NUM_NODES, 1000, 2).T
    items = gf.ItemSet((pairs, torch.arange(1000) * 200), names=("seeds", "timestamp"))
    return gf.ItemSampler(items, batch_size=1000 // BATCHES, shuffle=True)


def listed_items() -> gf.Datapipe:
    lists = torch.arange(3000).reshape(1000, 3) % NUM_NODES
    return gf.ItemSampler(gf.ItemSet((torch.arange(1000), lists), names=("seeds", "destinations")), 1000 // BATCHES)


def edge_items() -> gf.Datapipe:
    pairs = random_edges(NUM_NODES, NUM_NODES, 1000, 2).T
    return gf.ItemSampler(gf.ItemSet(pairs, names="seeds"), batch_size=1000 // BATCHES, shuffle=True)


def one_layer() -> gf.Datapipe:
    return labelled_items().sample_per_layer(graph().sample_neighbors, 3)


def few_items() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(100, names="seeds"), batch_size=100 // BATCHES, shuffle=True)


def iterable() -> gf.Datapipe:
    return gf.IterableSource([gf.MiniBatch(seeds=torch.arange(place, 100 + place)) for place in range(BATCHES)])


def typed_items() -> gf.Datapipe:
    item_set = gf.HeteroItemSet({"a": gf.ItemSet(torch.arange(1000), names="seeds")})
    return gf.ItemSampler(item_set, batch_size=1000 // BATCHES, shuffle=True)


@cache
def typed_graph() -> gf.FusedCSCSamplingGraph:
    """Return a graph of two node types."""
    edges = {f"{name}:to:a": random_edges(1000, 1000, 5000, seed) for seed, name in enumerate("ab")}
    return gf.from_coo(edges, {"a": 1000, "b": 1000})


BUILDERS: dict[type, Callable[[], gf.Datapipe]] = {
    gf.BudgetSampler: lambda: typed_items().sample_by_budget(typed_graph(), {"a": [9, 9], "b": [5, 5]}),
    gf.Bufferer: lambda: labelled_items().buffer(2),
    gf.CompactPerLayer: lambda: one_layer().compact_per_layer(True),
    gf.CopyTo: lambda: labelled_items().copy_to("cpu"),
    gf.DistributedItemSampler: ranked_items,
    gf.EndMarker: lambda: labelled_items().mark_end(),
    gf.FeatureFetcherStartMarker: lambda: labelled_items().mark_feature_fetcher_start(),
    gf.FeatureFetcher: lambda: iterable().sample_neighbor(graph(), [3]).fetch_feature(features(), ["feat"], ["row"]),
    gf.InSubgraphSampler: lambda: labelled_items().sample_in_subgraph(graph()),
    gf.ItemSampler: labelled_items,
    gf.IterableSource: iterable,
    gf.LayerNeighborSampler: lambda: labelled_items().sample_layer_neighbor(graph(), [2, 3], batch_dependency=2),
    gf.MiniBatchTransformer: lambda: labelled_items().transform(add_degree),
    gf.ListedPairSampler: lambda: listed_items().sample_listed_pair(None, NUM_NODES, 2, True),
    gf.NeighborSampler: lambda: labelled_items().sample_neighbor(graph(), [2, 3], prob_name="w"),
    gf.PageRankSampler: lambda: few_items().sample_by_ppr(graph(), 5, bound=1e-3),
    gf.PairNegativeSampler: lambda: edge_items().sample_negative_pairs(
        graph(), "binary", 1.5, gf.NegativeQuery(strict=True)
    ),
    gf.PrefetcherIterDataPipe: lambda: labelled_items().transform(add_degree).prefetch(2),
    gf.SamplePerLayer: lambda: one_layer(),
    gf.SeedEdgesExcluder: lambda: edge_items().sample_neighbor(graph(), [4, 4]).exclude_seed_edges(True),
    gf.SkipGramPairs: lambda: few_items().sample_walks(graph(), 4).skip_gram(2),
    gf.SubgraphInducer: lambda: iterable().sample_neighbor(graph(), [2], only_new=True).induce_subgraph(graph()),
    gf.TemporalLayerNeighborSampler: lambda: timed_items().temporal_sample_layer_neighbor(
        graph(), [2, 3], edge_timestamp_attr_name="time"
    ),
    gf.TemporalNeighborSampler: lambda: timed_items().temporal_sample_neighbor(
        graph(), [2, 3], prob_name="w", edge_timestamp_attr_name="time"
    ),
    gf.TemporalNegativeSampler: lambda: timed_pairs().sample_temporal_negative(
        graph(), "seen", 2, True, edge_timestamp_attr_name="time"
    ),
    gf.ToMatrix: lambda: (
        timed_items()
        .temporal_sample_neighbor(graph(), [2, 3], edge_timestamp_attr_name="time", strategy="latest")
        .to_matrix()
    ),
    gf.ToPyGData: lambda: edge_items().sample_neighbor(graph(), [2, 3]).to_pyg_data(),
    gf.UniformNegativeSampler: lambda: edge_items().sample_uniform_negative(graph(), 2),
    gf.VisitSampler: lambda: few_items().sample_by_visits(graph(), [2, 3], walks=5),
    gf.WalkSampler: lambda: labelled_items().sample_walks(graph(), 3, per_seed=2, p=0.5, q=2.0, probs_name="w"),
    gf.Waiter: lambda: labelled_items().transform(begin).wait(),
}
"""A pipeline of five mini-batches that ends with each stage of the library."""

HERE = [kind for kind in BUILDERS if kind is not gf.ToPyGData or find_spec("torch_geometric")]
ALL: dict[str, Callable[[], gf.Datapipe]] = {kind.__name__: BUILDERS[kind] for kind in HERE} | USERS
"""Those that run with what is installed, and those of users."""
