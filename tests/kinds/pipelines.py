"""Pipelines that many tests run: small, each of another kind."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

import graphfeed as gf

NUM_NODES = 300
NUM_EDGES = 3000


def random_edges(num_sources: int, num_destinations: int, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, size, (count,), generator=generator) for size in (num_sources, num_destinations)]
    return torch.stack(ends)


def seeds(count: int = 4) -> Any:
    """Return mini-batches of two seeds, without further stages."""
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=2)


def homogeneous() -> gf.Datapipe:
    graph = gf.from_coo(random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 0), NUM_NODES)
    ids = torch.arange(NUM_NODES)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(ids[:, None] * torch.ones(1, 40))})
    pipe = gf.ItemSampler(gf.ItemSet((ids, ids % 7), names=("seeds", "labels")), batch_size=32)
    return pipe.sample_neighbor(graph, fanouts=[3, 4]).fetch_feature(store, node_feature_keys=["feat"])


def shuffled() -> gf.Datapipe:
    return with_items(homogeneous(), lambda items: items.changed(shuffle=True, drop_last=True))


def weighted() -> gf.Datapipe:
    weights = torch.rand(NUM_EDGES, generator=torch.Generator().manual_seed(5)) - 0.3
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 1)
    graph = gf.from_coo(edges, NUM_NODES, edge_attributes={"weight": weights.clamp(min=0)})
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(NUM_NODES), names="seeds"), batch_size=40, shuffle=True)
    return pipe.sample_neighbor(graph, [3, 2], prob_name="weight").copy_to("cpu")


def heterogeneous() -> gf.Datapipe:
    edges = {
        "user:likes:item": random_edges(200, 60, 900, 2),
        "item:liked_by:user": random_edges(60, 200, 900, 3),
        "user:knows:user": random_edges(200, 200, 800, 4),
    }
    graph = gf.from_coo(edges, {"user": 200, "item": 60})
    store = gf.BasicFeatureStore(
        {
            ("node", "user", "feat"): gf.TorchBasedFeature(torch.arange(200.0)[:, None]),
            ("node", "item", "feat"): gf.TorchBasedFeature(1000 + torch.arange(60.0)[:, None]),
            ("edge", "user:likes:item", "row"): gf.TorchBasedFeature(torch.arange(900)[:, None]),
        }
    )
    items = gf.HeteroItemSet(
        {
            "user": gf.ItemSet((torch.arange(200), torch.arange(200) % 3), names=("seeds", "labels")),
            "item": gf.ItemSet((torch.arange(60), torch.arange(60) % 3), names=("seeds", "labels")),
        }
    )
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=30, shuffle=True)
    pipe = pipe.sample_neighbor(graph, fanouts=[2, [2, -1, 1]])
    pipe = pipe.fetch_feature(store, {"user": ["feat"], "item": ["feat"]}, {"user:likes:item": ["row"]})
    return pipe.copy_to("cpu")


def link_prediction() -> gf.Datapipe:
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 6)
    graph = gf.from_coo(edges, NUM_NODES)
    pipe = gf.ItemSampler(gf.ItemSet(edges.T[:400], names="seeds"), batch_size=50, shuffle=True)
    return pipe.sample_neighbor(graph, [2, 2], replace=True).transform()


def layer_sampled() -> gf.Datapipe:
    graph = gf.from_coo(random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 7), NUM_NODES)
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(NUM_NODES), names="seeds"), batch_size=25, shuffle=True)
    return pipe.sample_layer_neighbor(graph, [3, 4], batch_dependency=4)


def layer_sampled_by_type() -> gf.Datapipe:
    edges = {"user:likes:item": random_edges(200, 60, 900, 8), "item:liked_by:user": random_edges(60, 200, 900, 9)}
    weights = {kind: torch.rand(900, generator=torch.Generator().manual_seed(10)) for kind in edges}
    graph = gf.from_coo(edges, {"user": 200, "item": 60}, edge_attributes={"weight": weights})
    items = gf.HeteroItemSet({"user": gf.ItemSet(torch.arange(200), names="seeds")})
    pipe = gf.ItemSampler(items, batch_size=30, shuffle=True)
    return pipe.sample_layer_neighbor(graph, [3, [2, 4]], prob_name="weight", layer_dependency=True)


def negatives() -> gf.Datapipe:
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 7)
    graph = gf.from_coo(edges, NUM_NODES)
    pipe = gf.ItemSampler(gf.ItemSet(edges.T[:400], names="seeds"), batch_size=50, shuffle=True)
    return pipe.sample_uniform_negative(graph, 2).sample_neighbor(graph, [3, 2]).exclude_seed_edges(True)


def typed_negatives() -> gf.Datapipe:
    edges = {"user:likes:item": random_edges(200, 60, 900, 8), "user:knows:user": random_edges(200, 200, 800, 9)}
    graph = gf.from_coo(edges, {"user": 200, "item": 60})
    items = gf.HeteroItemSet({kind: gf.ItemSet(pairs.T[:150], names="seeds") for kind, pairs in edges.items()})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=40, shuffle=True)
    pipe = pipe.sample_uniform_negative(graph, 1).sample_neighbor(graph, [2, 2], deduplicate=False)
    return pipe.exclude_seed_edges(True, {"user:knows:user": "user:knows:user", "user:likes:item": None})


def hyperlinks() -> gf.Datapipe:
    graph = gf.from_coo(random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 10), NUM_NODES)
    triples = torch.stack([torch.arange(90), torch.arange(90, 180), torch.arange(90) * 3], dim=1)
    pipe = gf.ItemSampler(gf.ItemSet(triples, names="seeds"), batch_size=20, shuffle=True)
    return pipe.sample_layer_neighbor(graph, [3, 3])


def in_subgraphs() -> gf.Datapipe:
    edges = {"user:likes:item": random_edges(200, 60, 900, 11), "item:liked_by:user": random_edges(60, 200, 900, 12)}
    graph = gf.from_coo(edges, {"user": 200, "item": 60})
    items = gf.HeteroItemSet({kind: gf.ItemSet(pairs.T[:99], names="seeds") for kind, pairs in edges.items()})
    pipe = gf.ItemSampler(items, batch_size=30, shuffle=True)
    return pipe.sample_in_subgraph(graph)


class SideBySide(gf.Datapipe):
    """A join: the subgraphs of two branches around the same seeds."""

    left: gf.Datapipe
    right: gf.Datapipe

    def __iter__(self) -> Iterator[gf.MiniBatch]:
        for left, right in zip(self.left, self.right, strict=True):
            layers = [*(left.sampled_subgraphs or ()), *(right.sampled_subgraphs or ())]
            yield gf.MiniBatch(seeds=left.seeds, sampled_subgraphs=layers, key=left.key)


def joined() -> gf.Datapipe:
    """Return two branches that sample from one source."""
    graph = gf.from_coo(random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 11), NUM_NODES)
    items = gf.ItemSampler(gf.ItemSet(torch.arange(NUM_NODES), names="seeds"), batch_size=50, shuffle=True)
    return SideBySide(items.sample_neighbor(graph, [3]), items.sample_neighbor(graph, [3]))


def temporal_edges() -> gf.Datapipe:
    """Return links with the timestamps of both endpoints, on a graph whose nodes and edges have timestamps."""
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 10)
    generator = torch.Generator().manual_seed(11)
    graph = gf.from_coo(
        edges,
        NUM_NODES,
        node_attributes={"born": torch.randint(0, 50, (NUM_NODES,), generator=generator)},
        edge_attributes={
            "time": torch.randint(0, 100, (NUM_EDGES,), generator=generator),
            "weight": torch.rand(NUM_EDGES, generator=generator),
        },
    )
    moments = torch.randint(30, 120, (400, 2), generator=generator)
    pipe = gf.ItemSampler(gf.ItemSet((edges.T[:400], moments), names=("seeds", "timestamp")), batch_size=50)
    return pipe.temporal_sample_neighbor(graph, [2, 3], False, "weight", "born", "time", hop_time="edge")


def temporal_by_type() -> gf.Datapipe:
    edges = {"user:likes:item": random_edges(200, 60, 900, 12), "item:liked_by:user": random_edges(60, 200, 900, 13)}
    times = {kind: torch.arange(900) for kind in edges}
    graph = gf.from_coo(edges, {"user": 200, "item": 60}, edge_attributes={"time": times})
    users = gf.ItemSet((torch.arange(200), torch.arange(200) * 5), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(gf.HeteroItemSet({"user": users}), batch_size=30, shuffle=True)
    return pipe.temporal_sample_neighbor(
        graph, [3, [2, 4]], edge_timestamp_attr_name="time", pre_time_window=500, strategy="latest"
    )


def temporal_layer_sampled() -> gf.Datapipe:
    times = torch.randint(0, 100, (NUM_EDGES,), generator=torch.Generator().manual_seed(14))
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 15)
    graph = gf.from_coo(edges, NUM_NODES, edge_attributes={"time": times})
    items = gf.ItemSet((torch.arange(NUM_NODES), torch.arange(NUM_NODES) % 120), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, batch_size=25, shuffle=True)
    return pipe.temporal_sample_layer_neighbor(graph, [3, 4], edge_timestamp_attr_name="time")


def temporal_layer_sampled_by_type() -> gf.Datapipe:
    edges = {"user:likes:item": random_edges(200, 60, 900, 16), "item:liked_by:user": random_edges(60, 200, 900, 17)}
    times = {kind: torch.arange(900).flip(0) for kind in edges}
    graph = gf.from_coo(edges, {"user": 200, "item": 60}, edge_attributes={"time": times})
    users = gf.ItemSet((torch.arange(200), torch.arange(200) * 5), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(gf.HeteroItemSet({"user": users}), batch_size=30, shuffle=True)
    return pipe.temporal_sample_layer_neighbor(graph, [3, [2, 4]], edge_timestamp_attr_name="time", hop_time="edge")


def temporal_events() -> gf.Datapipe:
    """Return events by time span as matrices, without the events of their own span."""
    times = torch.arange(NUM_EDGES) // 3
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 18)
    graph = gf.from_coo(edges, NUM_NODES, edge_attributes={"time": times})
    items = gf.ItemSet((edges[1, -300:], times[-300:]), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, every=9, shuffle=True)
    return pipe.temporal_sample_neighbor(
        graph, [3, 4], edge_timestamp_attr_name="time", hop_time="edge", strategy="latest", visible="batch"
    ).to_matrix()


ALL = (
    homogeneous,
    shuffled,
    weighted,
    heterogeneous,
    link_prediction,
    layer_sampled,
    layer_sampled_by_type,
    negatives,
    typed_negatives,
    hyperlinks,
    in_subgraphs,
    joined,
    temporal_edges,
    temporal_by_type,
    temporal_layer_sampled,
    temporal_layer_sampled_by_type,
    temporal_events,
)


def sampler_of(pipe: gf.Datapipe) -> Any:
    """Return the one stage of a pipeline that samples neighbours."""
    (sampler,) = gf.find(pipe, gf.NeighborSampler)
    return sampler


def with_items(pipe: gf.Datapipe, change: Callable[[Any], gf.Datapipe]) -> gf.Datapipe:
    """Return a pipeline whose item sampler is changed into another source."""
    (items,) = gf.find(pipe, gf.ItemSampler)
    return gf.replace(pipe, items, change(items))


def moved(pipe: gf.Datapipe, device: str) -> gf.Datapipe:
    """Return a pipeline whose mini-batches are copied to a device after the item sampler."""
    for stage in reversed(gf.find(pipe, gf.Datapipe)):  # the stages after a replaced one are new objects
        fields = {}
        if isinstance(getattr(stage, "graph", None), gf.FusedCSCSamplingGraph):
            fields["graph"] = stage.graph.to(device)  # type: ignore[attr-defined]
        if isinstance(stage, gf.FeatureFetcher):
            store: Any = stage.feature_store
            fields["feature_store"] = gf.BasicFeatureStore({key: store[key].to(device) for key in store.keys()})  # noqa: SIM118
        if isinstance(stage, gf.CopyTo):
            fields["device"] = device
        new = stage.copy_to(device) if isinstance(stage, gf.ItemSampler) else stage.changed(**fields)
        pipe = gf.replace(pipe, stage, new)
    return pipe
