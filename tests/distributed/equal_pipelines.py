"""What each rank runs to compare mini-batches of a graph in parts with those of the whole graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedFeature, PartitionedGraph, Peers, cut_graph, cut_rows
from graphfeed.distributed.ranks import meeting_point
from graphfeed.distributed.ranks.peers import rank_and_size
from tests import golden_pipelines
from tests.digests import assert_same
from tests.golden_pipelines import numbers


def typed_in_time(**options: Any) -> gf.Datapipe:
    """Return a pipeline on a graph with types and times."""
    sets = {
        kind: gf.ItemSet((torch.arange(0, size, 2), numbers(size // 2, 100, 60)), names=("seeds", "timestamp"))
        for kind, size in {"user": 500, "item": 300}.items()
    }
    pipe = gf.ItemSampler(gf.HeteroItemSet(sets), golden_pipelines.BATCH_SIZE, shuffle=True)
    graph = golden_pipelines.typed()
    return pipe.temporal_sample_neighbor(graph, [4, [2, 3, 4]], edge_timestamp_attr_name="time", **options)


def per_layer() -> gf.Datapipe:
    """Return a pipeline that samples hop by hop."""
    pipe: gf.Datapipe = golden_pipelines.nodes()
    for fanout in (5, 4):
        pipe = pipe.sample_per_layer(golden_pipelines.untyped().sample_neighbors, fanout)
        pipe = pipe.compact_per_layer(deduplicate=True)
    return pipe


ALL: dict[str, golden_pipelines.Build] = {
    **{name: build for name, build in golden_pipelines.ALL.items() if not name.startswith("items")},
    "in time, window of both": lambda: golden_pipelines.in_time("node", "edge", pre_time_window=50)(),
    "in time, hop time": lambda: golden_pipelines.in_time("edge", hop_time="edge")(),
    "typed in time": typed_in_time,
    "typed in time, hop time": lambda: typed_in_time(hop_time="edge", pre_time_window=60),
    "typed in time, latest": lambda: typed_in_time(strategy="latest"),
    "one layer at a time": per_layer,
}
"""Functions that build the pipelines to compare, by name."""


def assign(num_ids: int, how: str, salt: int = 90) -> PartBook:
    """Return which rank owns each id.

    Args:
        num_ids: The number of ids.
        how: "range": ranks own ranges. "random": they own any ids. "empty": the same, but the last rank owns none.
            "stored": they own clusters of ids and odd ones, of sizes that differ, as METIS finds them in a real graph.
        salt: Another number gives other random parts.
    """
    world_size = rank_and_size()[1]
    if how == "range":
        return PartBook.from_bounds([part * num_ids // world_size for part in range(world_size + 1)])
    if how == "stored":
        clusters = numbers(50, world_size, salt)[torch.arange(num_ids) * 50 // num_ids]
        return PartBook.from_assignment(
            torch.where(numbers(num_ids, 10, salt) == 0, numbers(num_ids, world_size, salt), clusters), world_size
        )
    owning = max(1, world_size - (how == "empty"))
    return PartBook.from_assignment(numbers(num_ids, owning, salt), world_size)


def in_parts(graph: gf.FusedCSCSamplingGraph, how: str, peers: Peers | None = None) -> PartitionedGraph:
    """Return a graph of which this rank has a part."""
    return PartitionedGraph(cut_graph(graph, assign(graph.total_num_nodes, how), rank_and_size()[0]), peers)


def feature_in_parts(values: torch.Tensor, how: str, salt: int, peers: Peers) -> PartitionedFeature:
    """Return a feature of which this rank has a part."""
    book = assign(len(values), how, salt)
    return PartitionedFeature(cut_rows(values, book, rank_and_size()[0]), book, peers)


@contextmanager
def graphs_in_parts(how: str, peers: Peers) -> Iterator[None]:
    """Let the golden pipelines read graphs and features in parts."""
    whole, whole_typed, whole_features = (
        golden_pipelines.untyped,
        golden_pipelines.typed,
        golden_pipelines.features,
    )

    @cache
    def untyped(dtype: torch.dtype = torch.int64) -> PartitionedGraph:
        return in_parts(whole(dtype), how, peers)

    @cache
    def typed() -> PartitionedGraph:
        return in_parts(whole_typed(), how, peers)

    @cache
    def features() -> gf.BasicFeatureStore:
        parts: Any = {
            key: feature_in_parts(whole_features()[key].read(), how, salt, peers)
            for salt, key in enumerate([("node", None, "x"), ("edge", None, "e")], start=90)
        }
        return gf.BasicFeatureStore(parts)

    with pytest.MonkeyPatch.context() as patch:
        for function in (untyped, typed, features):
            patch.setattr(golden_pipelines, function.__name__, function)
        yield


def compare(how: str, names: list[str], num_workers: int = 0, share_memory: str = "yes") -> dict[str, int]:
    """Compare some mini-batches, each rank with draws of its own; return how many of each pipeline were equal.

    Args:
        how: How nodes are assigned to ranks; see `assign`.
        names: The pipelines.
        num_workers: The threads of each loader.
        share_memory: "yes" or "no"; "some": as if ranks with odd numbers were on another machine.
    """
    seed, equal = rank_and_size()[0], dict.fromkeys(names, 0)
    if share_memory == "some":
        vars(meeting_point)["memory_scope"] = lambda: f"machine {seed % 2}"
    with graphs_in_parts(how, Peers(share_memory=share_memory != "no")):
        own = {name: gf.DataLoader(ALL[name](), num_workers, seed=seed) for name in names}
    for name in names:
        expected = gf.DataLoader(ALL[name](), 0, seed=seed)
        with own[name] as loader:
            for found, wanted in islice(zip(loader, expected, strict=True), 3):
                assert_same(found, wanted)
                equal[name] += 1
    return equal
