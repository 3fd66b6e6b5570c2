"""Mini-batches of real graphs in parts, whose ranks are threads, against those of the whole graph."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    assign_nodes,
    cut_graph,
    cut_rows,
)
from tests.digests import assert_same
from tests.distributed.joint import by_type, in_threads
from tests.golden_pipelines import numbers
from tests.test_edge_truth import load

PAIR = "user:edits:page"
Pipelines = dict[str, gf.Datapipe]


@cache
def whole(folder: Path, name: str) -> gf.FusedCSCSamplingGraph:
    """Return a real graph, whose edges have weights, and times where it has none."""
    if name == "wordnet":
        graph: Any = gf.datasets.wordnet().graph
        graph.add_edge_attribute("weight", numbers(graph.total_num_edges, 9, 1).float())
        return graph  # type: ignore[no-any-return]
    arrays = load(folder, name)
    count = len(arrays["src"])
    if name == "wikipedia_temporal":
        pair, times = (arrays["src"].long(), arrays["dst"].long()), arrays["timestamp"].long()
        edges = {PAIR: pair, "page:edited_by:user": pair[::-1]}
        sizes = {kind: int(arrays[f"num_nodes_{kind}"]) for kind in ("user", "page")}
        attributes = {"time": dict.fromkeys(edges, times), "weight": dict.fromkeys(edges, numbers(count, 9, 1).float())}
        return gf.from_coo(edges, sizes, edge_attributes=attributes)
    weights = {"weight": numbers(count, 9, 1).float(), "time": numbers(count, 90, 2)}
    return gf.from_coo((arrays["src"], arrays["dst"]), int(arrays["num_nodes"]), edge_attributes=weights)


def untimed(pipe: gf.Datapipe, graph: gf.SamplingGraph, fanouts: list[int]) -> Iterator[tuple[str, gf.Datapipe]]:
    """Yield what each sampler without times makes of some seeds."""
    yield "uniform", pipe.sample_neighbor(graph, fanouts)
    yield "replace", pipe.sample_neighbor(graph, fanouts, replace=True, deduplicate=False)
    yield "weighted", pipe.sample_neighbor(graph, fanouts, prob_name="weight")
    yield "new nodes", pipe.sample_neighbor(graph, fanouts, only_new=True)
    yield "disjoint", pipe.sample_neighbor(graph, fanouts, disjoint=True)
    yield "LABOR", pipe.sample_layer_neighbor(graph, fanouts)
    yield "LABOR, weighted", pipe.sample_layer_neighbor(graph, fanouts, prob_name="weight", batch_dependency=3)
    yield "in subgraph", pipe.sample_in_subgraph(graph)


def timed(pipe: gf.Datapipe, graph: gf.SamplingGraph) -> Iterator[tuple[str, gf.Datapipe]]:
    """Yield what each sampler in time makes of some seeds."""
    by: dict[str, Any] = {"edge_timestamp_attr_name": "time"}
    yield "in time", pipe.temporal_sample_neighbor(graph, [6, 4], **by)
    yield "latest", pipe.temporal_sample_neighbor(graph, [6, 4], **by, strategy="latest", pre_time_window=40)
    yield "in time, LABOR", pipe.temporal_sample_layer_neighbor(graph, [6, 4], **by)


def codes(graph: gf.SamplingGraph) -> dict[str | None, torch.Tensor]:
    """Return rows that tell the ids of nodes, by node type."""
    sizes: Any = graph.num_nodes
    return {kind: torch.arange(size * 4).view(size, 4) for kind, size in by_type(sizes).items()}


def store_of(features: dict[str | None, gf.Feature]) -> gf.BasicFeatureStore:
    return gf.BasicFeatureStore({("node", kind, "code"): feature for kind, feature in features.items()})


def pipelines(name: str, graph: gf.SamplingGraph, store: gf.FeatureStore) -> Pipelines:
    """Return what each sampler makes of some seeds of a graph, by its name, and what is fetched for one of them."""
    found = samplers(name, graph)
    sizes: Any = graph.num_nodes
    names: Any = ["code"] if isinstance(sizes, int) else {kind: ["code"] for kind in sizes}
    return {**found, "features": found["uniform"].fetch_feature(store, names)}


def samplers(name: str, graph: gf.SamplingGraph) -> Pipelines:
    """Return what each sampler makes of some seeds of a graph, by its name."""
    sizes: Any = graph.num_nodes
    if isinstance(sizes, int):
        items = gf.ItemSet((numbers(40, sizes, 3), numbers(40, 90, 4)), names=("seeds", "timestamp"))
        nodes: gf.Datapipe = gf.ItemSampler(gf.ItemSet(numbers(40, sizes, 3), names="seeds"), 40, shuffle=True)
        pairs: gf.Datapipe = gf.ItemSampler(gf.ItemSet(numbers(40, sizes, 5).view(-1, 2), names="seeds"), 20)
        found = [*untimed(nodes, graph, [5, 4]), *timed(gf.ItemSampler(items, 40, shuffle=True), graph)]
        links = pairs.sample_uniform_negative(graph, 2).sample_neighbor(graph, [4, 3]).exclude_seed_edges(True)
        return {**dict(found), "links": links}
    kinds = list(sizes)[:2]
    sets: dict[str, Any] = {kind: gf.ItemSet(numbers(20, sizes[kind], 3), names="seeds") for kind in kinds}
    found = list(untimed(gf.ItemSampler(gf.HeteroItemSet(sets), 40, shuffle=True), graph, [3, 2]))
    if name == "wikipedia_temporal":
        items = gf.ItemSet((numbers(40, sizes["page"], 3), numbers(40, 2_000_000, 4)), names=("seeds", "timestamp"))
        found += timed(gf.ItemSampler(gf.HeteroItemSet({"page": items}), 40), graph)
        ends = torch.stack([numbers(20, sizes["user"], 6), numbers(20, sizes["page"], 7)], dim=1)
        pairs = gf.ItemSampler(gf.HeteroItemSet({PAIR: gf.ItemSet(ends, names="seeds")}), 20)
        found += [("links", pairs.sample_uniform_negative(graph, 1).sample_neighbor(graph, [3, 2]))]
    return dict(found)


def made(pipe: gf.Datapipe) -> list[Any]:
    """Return an epoch of one mini-batch."""
    with gf.DataLoader(pipe, 0, seed=5) as loader:
        return list(loader)


@cache
def wanted(folder: Path, name: str) -> dict[str, list[Any]]:
    """Return the mini-batches of the whole graph."""
    graph = whole(folder, name)
    store = store_of({kind: gf.TorchBasedFeature(rows) for kind, rows in codes(graph).items()})
    return {sampler: made(pipe) for sampler, pipe in pipelines(name, graph, store).items()}


def assign(graph: gf.FusedCSCSamplingGraph, num_parts: int, method: str) -> PartBook:
    """Return the part of each node; "empty" leaves the last part without any, "random" follows nothing."""
    total = graph.total_num_nodes
    if method in ("random", "empty"):
        owning = max(1, num_parts - (method == "empty"))
        return PartBook.from_assignment(numbers(total, owning, 8), num_parts)
    found = assign_nodes(graph, num_parts, method)
    parts = torch.cat([found[kind] for kind in found]) if isinstance(found, dict) else found
    return PartBook.from_assignment(parts, num_parts)


def compare(folder: Path, name: str, num_parts: int, method: str, *, share_memory: bool = False) -> list[str]:
    """Compare the mini-batches of all samplers on all ranks; return the samplers."""
    graph = whole(folder, name)
    book, expected = assign(graph, num_parts, method), wanted(folder, name)

    def work(rank: int, peers: Peers) -> None:
        part = cut_graph(graph, book, rank)
        features: dict[str | None, gf.Feature] = {}
        for kind, rows in codes(graph).items():
            own = part.book_of(kind)
            feature = PartitionedFeature(cut_rows(rows, own, rank), own, peers, kind or "")
            features[kind] = gf.cpu_cached_feature(feature, 1 << 14)  # which keeps remote rows alone
        for sampler, pipe in pipelines(name, PartitionedGraph(part, peers), store_of(features)).items():
            assert_same(made(pipe), expected[sampler])

    in_threads(num_parts, work, share_memory=share_memory)
    return list(expected)
