"""Pipelines whose mini-batches are fixed: one of every kind, with only public names and integer arithmetic.

Neither NumPy nor PyTorch promises that its random numbers stay the same, so nothing here uses them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import graphfeed as gf
from graphfeed import pyg

NUM_NODES = 2000
NUM_EDGES = 24000
BATCH_SIZE = 128
NUM_HUB_NODES, NUM_HUB_EDGES = 2048, 16384
Build = Callable[[], gf.Datapipe]


def numbers(count: int, limit: int, salt: int) -> torch.Tensor:
    """Return numbers below a limit that look random: SplitMix64 of 0, 1, 2, ..."""
    value: NDArray[np.uint64] = np.arange(salt << 32, (salt << 32) + count, dtype=np.uint64)
    value = (value + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value = value ^ (value >> np.uint64(31))
    return torch.from_numpy((value % np.uint64(limit)).astype(np.int64))


def fractions(count: int, salt: int) -> torch.Tensor:
    """Return numbers from 0 to 1, all of them multiples of 1/1024, which floats hold exactly."""
    return numbers(count, 1025, salt) / 1024


@cache
def untyped(dtype: torch.dtype = torch.int64) -> gf.FusedCSCSamplingGraph:
    """Return a graph with hubs among the sources, attributes of edges, and times of nodes and edges."""
    sources = numbers(NUM_EDGES, NUM_NODES, 1) * numbers(NUM_EDGES, NUM_NODES, 2) // NUM_NODES
    edges = torch.stack([sources, numbers(NUM_EDGES, NUM_NODES, 3)]).to(dtype)
    return gf.from_coo(
        edges,
        NUM_NODES,
        node_attributes={"time": numbers(NUM_NODES, 100, 4)},
        edge_attributes={
            "weight": fractions(NUM_EDGES, 5),
            "mask": numbers(NUM_EDGES, 2, 6).bool(),
            "time": numbers(NUM_EDGES, 100, 7),
        },
    )


@cache
def typed() -> gf.FusedCSCSamplingGraph:
    """Return users who like items and know each other."""
    sizes = {"user": 500, "item": 300}
    kinds = {"user:likes:item": 4000, "item:liked_by:user": 4000, "user:knows:user": 2500}
    edges, times = {}, {}
    for salt, (kind, count) in enumerate(kinds.items(), start=10):
        source, _, destination = kind.split(":")
        edges[kind] = (numbers(count, sizes[source], salt), numbers(count, sizes[destination], 10 * salt))
        times[kind] = numbers(count, 100, 20 + salt)
    return gf.from_coo(edges, sizes, edge_attributes={"time": times})


def skewed(count: int, salt: int) -> torch.Tensor:
    """Return nodes of the graph with hubs: a sixth of them is node 0, a twelfth node 1, a 24th node 2, and so on."""
    return numbers(count, NUM_HUB_NODES, salt) >> numbers(count, 12, salt + 1)


@cache
def hubs() -> gf.FusedCSCSamplingGraph:
    """Return a graph with columns of up to 2,700 edges, of which many have the same time and some have no weight."""
    weights = fractions(NUM_HUB_EDGES, 44) * (numbers(NUM_HUB_EDGES, 4, 45) > 0)
    return gf.from_coo(
        torch.stack([skewed(NUM_HUB_EDGES, 40), skewed(NUM_HUB_EDGES, 42)]),
        NUM_HUB_NODES,
        node_attributes={"born": numbers(NUM_HUB_NODES, 20, 46)},
        edge_attributes={"weight": weights, "time": numbers(NUM_HUB_EDGES, 20, 47)},
    )


def features() -> gf.BasicFeatureStore:
    return gf.BasicFeatureStore(
        {
            ("node", None, "x"): gf.TorchBasedFeature(torch.arange(NUM_NODES * 4.0).view(NUM_NODES, 4)),
            ("edge", None, "e"): gf.TorchBasedFeature(torch.arange(NUM_EDGES * 2).view(NUM_EDGES, 2)),
        }
    )


def nodes(dtype: torch.dtype = torch.int64) -> gf.Datapipe:
    """Return every third node with a label and a time."""
    ids = torch.arange(0, NUM_NODES, 3)
    items = gf.ItemSet((ids.to(dtype), ids % 7, ids % 100), names=("seeds", "labels", "timestamp"))
    return gf.ItemSampler(items, BATCH_SIZE, shuffle=True)


def tuples(width: int) -> gf.Datapipe:
    """Return edges, or hyperlinks of more than two nodes."""
    return gf.ItemSampler(gf.ItemSet(numbers(400 * width, NUM_NODES, 30).view(-1, width), names="seeds"), BATCH_SIZE)


def by_type(width: int = 1) -> gf.Datapipe:
    """Return seeds of two node types, or of two edge types."""
    if width == 1:
        items = {"user": torch.arange(0, 500, 2), "item": torch.arange(0, 300, 2)}
    else:
        likes = torch.stack([numbers(300, 500, 31), numbers(300, 300, 32)], dim=1)
        items = {"user:likes:item": likes, "user:knows:user": numbers(200, 500, 33).view(-1, 2)}
    sets = {kind: gf.ItemSet((ids, torch.arange(len(ids)) % 90), ("seeds", "labels")) for kind, ids in items.items()}
    return gf.ItemSampler(gf.HeteroItemSet(sets), BATCH_SIZE, shuffle=True)


def neighbor(fanouts: list[Any], dtype: torch.dtype = torch.int64, **options: Any) -> Build:
    return lambda: nodes(dtype).sample_neighbor(untyped(dtype), fanouts, **options)


def labor(fanouts: list[Any], dtype: torch.dtype = torch.int64, **options: Any) -> Build:
    return lambda: nodes(dtype).sample_layer_neighbor(untyped(dtype), fanouts, **options)


def in_time(*owners: str, **options: Any) -> Build:
    by = {f"{owner}_timestamp_attr_name": "time" for owner in owners} | options
    return lambda: nodes().temporal_sample_neighbor(untyped(), [5, 4], **by)


def labor_in_time(*owners: str) -> Build:
    by: dict[str, Any] = {f"{owner}_timestamp_attr_name": "time" for owner in owners}
    return lambda: nodes().temporal_sample_layer_neighbor(untyped(), [5, 4], **by)


def links(ratio: int) -> gf.Datapipe:
    return tuples(2).sample_uniform_negative(untyped(), ratio).sample_neighbor(untyped(), [5, 4])


def typed_links() -> gf.Datapipe:
    return by_type(2).sample_uniform_negative(typed(), 1).sample_neighbor(typed(), [4, 3]).exclude_seed_edges()


def typed_in_time(**options: Any) -> gf.Datapipe:
    """Return a pipeline on a graph with types and timestamps."""
    sets = {
        kind: gf.ItemSet((torch.arange(0, size, 2), numbers(size // 2, 100, 60)), names=("seeds", "timestamp"))
        for kind, size in {"user": 500, "item": 300}.items()
    }
    pipe = gf.ItemSampler(gf.HeteroItemSet(sets), BATCH_SIZE, shuffle=True)
    return pipe.temporal_sample_neighbor(typed(), [4, [2, 3, 4]], edge_timestamp_attr_name="time", **options)


def per_layer() -> gf.Datapipe:
    """Return a pipeline that samples hop by hop."""
    pipe: gf.Datapipe = nodes()
    for fanout in (5, 4):
        pipe = pipe.sample_per_layer(untyped().sample_neighbors, fanout).compact_per_layer(deduplicate=True)
    return pipe


def by_budget() -> gf.Datapipe:
    """Return a pipeline of HGT's sampler."""
    return by_type().sample_by_budget(typed(), {"user": [5, 9], "item": [4, 8]})


def hub_seeds() -> gf.Datapipe:
    """Return hubs and other nodes with a time."""
    ids = torch.cat([torch.arange(8), torch.arange(8, NUM_HUB_NODES, 16)])
    return gf.ItemSampler(gf.ItemSet((ids, 5 + ids % 16), names=("seeds", "timestamp")), 32, shuffle=True)


def around_hubs(fanouts: list[Any], **options: Any) -> Build:
    return lambda: hub_seeds().sample_neighbor(hubs(), fanouts, **options)


def labor_around_hubs(fanouts: list[Any], **options: Any) -> Build:
    return lambda: hub_seeds().sample_layer_neighbor(hubs(), fanouts, **options)


def around_hubs_in_time(**options: Any) -> Build:
    by = {"edge_timestamp_attr_name": "time", **options}
    return lambda: hub_seeds().temporal_sample_neighbor(hubs(), [20, 60], **by)


def pyg_loader(name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that makes one of PyG's loaders for the graph with hubs."""

    def make() -> Any:
        data = gf.to_pyg(hubs())
        return getattr(pyg, name)(data, *arguments, batch_size=512, shuffle=True, num_workers=2, seed=11, **options)

    return make


LINKS = torch.stack([skewed(600, 48), skewed(600, 50)])
ALL: dict[str, Callable[[], Any]] = {
    "items": nodes,
    "items, drop last": lambda: nodes().changed(batch_size=100, drop_last=True),
    "uniform, int64": neighbor([5, 4]),
    "replace, int64": neighbor([5, 4], replace=True),
    "weighted, int64": neighbor([5, 4], prob_name="weight"),
    "weighted, replace, int64": neighbor([5, 4], prob_name="weight", replace=True),
    "LABOR, int64": labor([5, 4]),
    "uniform, int32": neighbor([5, 4], torch.int32),
    "replace, int32": neighbor([5, 4], torch.int32, replace=True),
    "weighted, int32": neighbor([5, 4], torch.int32, prob_name="weight"),
    "weighted, replace, int32": neighbor([5, 4], torch.int32, prob_name="weight", replace=True),
    "LABOR, int32": labor([5, 4], torch.int32),
    "three hops": neighbor([5, 4, 3]),
    "all neighbours": neighbor([-1, 3]),
    "mask": neighbor([5, 4], prob_name="mask"),
    "disjoint": neighbor([5, 4], disjoint=True),
    "not deduplicated": neighbor([3, 2], deduplicate=False),
    "LABOR, weighted": labor([5, 4], prob_name="weight"),
    "LABOR, layer dependency": labor([5, 4], layer_dependency=True),
    "LABOR, batch dependency": labor([5, 4], batch_dependency=4),
    "in subgraph": lambda: nodes().sample_in_subgraph(untyped()),
    "features": lambda: neighbor([5, 4])().fetch_feature(features(), ["x"], ["e"]),
    "in time by edges": in_time("edge"),
    "in time by edges, LABOR": labor_in_time("edge"),
    "in time by nodes": in_time("node"),
    "in time by nodes, LABOR": labor_in_time("node"),
    "in time by both": in_time("node", "edge"),
    "in time by both, LABOR": labor_in_time("node", "edge"),
    "in time, latest": in_time("edge", pre_time_window=40, strategy="latest"),
    "in time, disjoint": in_time("edge", disjoint=True),
    "links": lambda: links(2),
    "links, excluded": lambda: links(1).exclude_seed_edges(True),
    "hyperlinks": lambda: tuples(3).sample_neighbor(untyped(), [5, 4]),
    "typed": lambda: by_type().sample_neighbor(typed(), [4, 3]),
    "typed, fan-outs by type": lambda: by_type().sample_neighbor(typed(), [[4, 3, 2], [2, 3, 4]]),
    "typed, replace": lambda: by_type().sample_neighbor(typed(), [4, 3], replace=True),
    "typed, disjoint": lambda: by_type().sample_neighbor(typed(), [4, 3], disjoint=True),
    "typed, LABOR": lambda: by_type().sample_layer_neighbor(typed(), [4, 3]),
    "typed, in subgraph": lambda: by_type().sample_in_subgraph(typed()),
    "typed links, excluded": typed_links,
    "new nodes": neighbor([5, 4], only_new=True),
    "in time, window of both": in_time("node", "edge", pre_time_window=50),
    "in time, hop time": in_time("edge", hop_time="edge"),
    "typed in time": typed_in_time,
    "typed in time, hop time": lambda: typed_in_time(hop_time="edge", pre_time_window=60),
    "typed in time, latest": lambda: typed_in_time(strategy="latest"),
    "typed, by budget": by_budget,
    "one layer at a time": per_layer,
    "walks, pairs": lambda: nodes().sample_walks(untyped(), 6, stop=0.1).skip_gram(2),
    "walks of node2vec by weight, pairs": lambda: (
        nodes().sample_walks(untyped(), 4, p=0.25, q=4.0, probs_name="weight").skip_gram(1)
    ),
    "visits": lambda: nodes().sample_by_visits(untyped(), [3, 4], walks=10),
    "PageRank": lambda: nodes().sample_by_ppr(untyped(), 6, bound=1e-3),
    "hubs": around_hubs([20, 60]),
    "hubs, replace": around_hubs([20, 60], replace=True),
    "hubs, weighted": around_hubs([20, 60], prob_name="weight"),
    "hubs, weighted, replace": around_hubs([20, 60], prob_name="weight", replace=True),
    "hubs, disjoint": around_hubs([20, 60], disjoint=True),
    "hubs, new nodes": around_hubs([20, 60], only_new=True),
    "hubs, LABOR": labor_around_hubs([20, 60]),
    "hubs, LABOR, weighted": labor_around_hubs([20, 60], prob_name="weight"),
    "hubs, LABOR, replace": labor_around_hubs([20], replace=True),
    "hubs in time": around_hubs_in_time(),
    "hubs in time, weighted": around_hubs_in_time(prob_name="weight"),
    "hubs in time, window of both, weighted": around_hubs_in_time(
        node_timestamp_attr_name="born", prob_name="weight", pre_time_window=6
    ),
    "hubs in time, hop time, latest": around_hubs_in_time(hop_time="edge", strategy="latest"),
    "hubs in time, disjoint": around_hubs_in_time(disjoint=True),
    "PyG, neighbors": pyg_loader("NeighborLoader", [20, 60]),
    "PyG, induced": pyg_loader("NeighborLoader", [20, 5], subgraph_type="induced"),
    "PyG, links": pyg_loader("LinkNeighborLoader", [20, 5], LINKS, neg_sampling_ratio=1.0),
}
"""Functions that build the pipelines, and PyG's loaders, by name."""
