"""What every stage keeps: iterate twice, equal; pickle small; print; any number of workers, equal; resume midway."""

import inspect
import pickle
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.fluent import find_stage, list_names
from tests.digests import digest, digests
from tests.pipelines import random_edges

NUM_NODES, NUM_EDGES = 20_000, 200_000
BATCHES = 5
SEED = 11


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
    assert isinstance(minibatch.seeds, torch.Tensor)
    labels = graph().csc_indptr.diff()[minibatch.seeds]
    return gf.MiniBatch(seeds=minibatch.seeds, labels=labels, key=minibatch.key)


class Waiting(gf.MiniBatch):
    """A mini-batch that something is still to come for."""

    def wait(self) -> None:
        self.labels = None


def begin(minibatch: gf.MiniBatch) -> Waiting:
    """Begin something."""
    return Waiting(seeds=minibatch.seeds, labels=minibatch.seeds, key=minibatch.key)


def ranked_items() -> gf.Datapipe:
    """Return the share of one rank of two."""
    item_set = gf.ItemSet(torch.arange(NUM_NODES), names="seeds")
    size = NUM_NODES // BATCHES // 2 + 1
    return gf.DistributedItemSampler(item_set, batch_size=size, shuffle=True, rank=1, world_size=2)


def items() -> gf.Datapipe:
    ids = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(1))
    item_set = gf.ItemSet((ids, ids * 2), names=("seeds", "labels"))
    return gf.ItemSampler(item_set, batch_size=NUM_NODES // BATCHES + 1, shuffle=True)


def timed_items() -> gf.Datapipe:
    item_set = gf.ItemSet((torch.arange(1000), torch.arange(1000) * 200), names=("seeds", "timestamp"))
    return gf.ItemSampler(item_set, batch_size=1000 // BATCHES, shuffle=True)


def edge_items() -> gf.Datapipe:
    pairs = random_edges(NUM_NODES, NUM_NODES, 1000, 2).T
    return gf.ItemSampler(gf.ItemSet(pairs, names="seeds"), batch_size=1000 // BATCHES, shuffle=True)


def one_layer() -> gf.Datapipe:
    return items().sample_per_layer(graph().sample_neighbors, 3)


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
    gf.Bufferer: lambda: items().buffer(2),
    gf.CompactPerLayer: lambda: one_layer().compact_per_layer(True),
    gf.CopyTo: lambda: items().copy_to("cpu"),
    gf.DistributedItemSampler: ranked_items,
    gf.EndMarker: lambda: items().mark_end(),
    gf.FeatureFetcherStartMarker: lambda: items().mark_feature_fetcher_start(),
    gf.FeatureFetcher: lambda: iterable().sample_neighbor(graph(), [3]).fetch_feature(features(), ["feat"], ["row"]),
    gf.InSubgraphSampler: lambda: items().sample_in_subgraph(graph()),
    gf.ItemSampler: items,
    gf.IterableSource: iterable,
    gf.LayerNeighborSampler: lambda: items().sample_layer_neighbor(graph(), [2, 3], batch_dependency=2),
    gf.MiniBatchTransformer: lambda: items().transform(add_degree),
    gf.NeighborSampler: lambda: items().sample_neighbor(graph(), [2, 3], prob_name="w"),
    gf.PairNegativeSampler: lambda: edge_items().sample_negative_pairs(
        graph(), "binary", 1.5, gf.NegativeQuery(strict=True)
    ),
    gf.PrefetcherIterDataPipe: lambda: items().transform(add_degree).prefetch(2),
    gf.SamplePerLayer: lambda: one_layer(),
    gf.SeedEdgesExcluder: lambda: edge_items().sample_neighbor(graph(), [4, 4]).exclude_seed_edges(True),
    gf.SubgraphInducer: lambda: iterable().sample_neighbor(graph(), [2], only_new=True).induce_subgraph(graph()),
    gf.TemporalLayerNeighborSampler: lambda: timed_items().temporal_sample_layer_neighbor(
        graph(), [2, 3], edge_timestamp_attr_name="time"
    ),
    gf.TemporalNeighborSampler: lambda: timed_items().temporal_sample_neighbor(
        graph(), [2, 3], prob_name="w", edge_timestamp_attr_name="time"
    ),
    gf.ToPyGData: lambda: edge_items().sample_neighbor(graph(), [2, 3]).to_pyg_data(),
    gf.UniformNegativeSampler: lambda: edge_items().sample_uniform_negative(graph(), 2),
    gf.Waiter: lambda: items().transform(begin).wait(),
}
"""A pipeline that ends with each stage."""

BASES = {gf.Datapipe, gf.FanoutSampler, gf.NegativeSampler, gf.SubgraphSampler, gf.TemporalSampler, gf.Transform}

without_pyg = pytest.mark.skipif(find_spec("torch_geometric") is None, reason="torch_geometric is not installed")

each_stage = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[without_pyg] if kind is gf.ToPyGData else []) for kind in BUILDERS],
    ids=lambda kind: kind.__name__,
)


def stages() -> set[type]:
    """Return the stages that a pipeline is written with: the public ones and those with a fluent name."""
    public = {getattr(gf.datapipes, name) for name in gf.datapipes.__all__}
    named = {find_stage(name) for name in list_names()}
    found = {kind for kind in public | named if inspect.isclass(kind) and issubclass(kind, gf.Datapipe)}
    return {kind for kind in found if kind.__module__.startswith("graphfeed.")} - BASES


@cache
def expected(kind: type) -> list[str]:
    """Return the mini-batches of an epoch, made inline and without a loader."""
    return digests(BUILDERS[kind]().with_seed(SEED))


def test_every_stage_is_held_to_it() -> None:
    assert set(BUILDERS) == stages()


@each_stage
def test_a_builder_ends_with_its_stage(kind: type) -> None:
    assert type(BUILDERS[kind]()) is kind
    assert len(set(expected(kind))) == BATCHES


@each_stage
def test_iterating_twice_gives_the_same(kind: type) -> None:
    pipe = BUILDERS[kind]().with_seed(SEED)
    assert digests(pipe) == expected(kind)
    assert digests(pipe) == expected(kind)
    assert len(pipe) == BATCHES


@each_stage
def test_a_mini_batch_that_it_is_given_stays_as_it_is(kind: type) -> None:
    stage: Any = BUILDERS[kind]()
    if isinstance(stage, gf.Transform) and kind is not gf.Waiter:  # which lets the mini-batch itself wait
        for minibatch in stage.datapipe:
            before = digest(minibatch)
            stage(minibatch)
            assert digest(minibatch) == before


@each_stage
def test_it_pickles_small(kind: type) -> None:
    pipe = BUILDERS[kind]().with_seed(SEED)
    packed = pickle.dumps(pipe)
    assert len(packed) < 1 << 16
    assert digests(pickle.loads(packed)) == expected(kind)
    assert digests(pipe) == expected(kind)


@each_stage
def test_it_prints_in_few_words(kind: type) -> None:
    text = repr(BUILDERS[kind]())
    assert f"{kind.__name__}(" in text
    assert len(text) < 500


@each_stage
def test_any_number_of_workers_gives_the_same_and_changes_no_pipeline(kind: type) -> None:
    pipe = BUILDERS[kind]()
    before = digests(pipe)
    for num_workers in (0, 1, 3):
        with gf.DataLoader(pipe, num_workers=num_workers, seed=SEED) as loader:
            assert len(loader) == BATCHES
            assert digests(loader) == expected(kind)
    assert digests(pipe) == before


@each_stage
@pytest.mark.parametrize("num_workers", [0, 3])
def test_it_goes_on_in_the_middle(kind: type, num_workers: int) -> None:
    with gf.DataLoader(BUILDERS[kind](), num_workers=num_workers, seed=SEED) as loader:
        iterator = iter(loader)
        first = digests(next(iterator) for _ in range(2))
        state = loader.state_dict()
    with gf.DataLoader(BUILDERS[kind](), num_workers=3 - num_workers, seed=SEED) as loader:
        loader.load_state_dict(state)
        assert first + digests(loader) == expected(kind)


@each_stage
def test_it_starts_anywhere(kind: type) -> None:
    for start in (3, BATCHES):
        assert digests(BUILDERS[kind]().with_seed(SEED, start=start)) == expected(kind)[start:]


@each_stage
def test_another_epoch_is_another(kind: type) -> None:
    """The keys alone tell the epochs of a source apart that has no order to change."""
    other: Any = list(BUILDERS[kind]().with_seed(SEED, epoch=1))
    assert not set(digests(other)) & set(expected(kind))
    if kind is not gf.ToPyGData:
        assert [batch.key.epoch for batch in other] == [1] * BATCHES
