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

NUM_NODES = 2000
NUM_EDGES = 24000
BATCH_SIZE = 128
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


ALL: dict[str, Build] = {
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
}
"""Functions that build the pipelines, by name."""
