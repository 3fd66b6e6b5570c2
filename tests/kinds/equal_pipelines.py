"""Pipelines whose mini-batches must not depend on partitioning, and the function that checks this."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
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
from tests.kinds import golden_pipelines
from tests.kinds.digests import assert_same
from tests.kinds.golden_pipelines import fractions, numbers
from tests.laws.test_edge_truth import load
from tests.stand_ins.rank_processes import rank_and_size

NODE, EDGE = ("node", None, "x"), ("edge", None, "e")
LOCK = threading.RLock()
"""Held while the golden pipelines read other graphs."""


ALL: dict[str, golden_pipelines.Build] = {
    name: build for name, build in golden_pipelines.ALL.items() if not name.startswith(("items", "hubs", "PyG"))
}
"""Functions that build the pipelines to compare, by name."""


class Graphs(NamedTuple):
    """The graphs and features that the golden pipelines read."""

    untyped: Callable[..., gf.SamplingGraph]
    typed: Callable[[], gf.SamplingGraph]
    features: Callable[[], gf.BasicFeatureStore]


GOLDEN = Graphs(golden_pipelines.untyped, golden_pipelines.typed, golden_pipelines.features)


def real(folder: Path, name: str) -> Graphs:
    """Return a real graph in the form of the golden one without types."""
    arrays = load(folder, name)
    count, size = len(arrays["src"]), int(arrays["num_nodes"])

    @cache
    def make(dtype: torch.dtype = torch.int64) -> gf.FusedCSCSamplingGraph:
        attributes = {
            "weight": fractions(count, 5),
            "mask": numbers(count, 2, 6).bool(),
            "time": numbers(count, 100, 7),
        }
        edges = torch.stack([arrays["src"], arrays["dst"]]).to(dtype)
        times = {"time": numbers(size, 100, 4)}
        return gf.from_coo(edges, size, node_attributes=times, edge_attributes=attributes)

    @cache
    def features() -> gf.BasicFeatureStore:
        rows = {NODE: torch.arange(size * 2.0), EDGE: torch.arange(count * 2)}
        return gf.BasicFeatureStore({key: gf.TorchBasedFeature(own.view(-1, 2)) for key, own in rows.items()})

    return Graphs(make, golden_pipelines.typed, features)


def assign(num_ids: int, how: str, salt: int = 90, num_parts: int | None = None) -> PartBook:
    """Return the part of each id.

    Args:
        num_ids: Number of ids.
        how: "range": consecutive ids. "random": random parts. "empty": the same, but the last part has no ids.
            "stored": clusters of ids and single ones, of different sizes, as METIS finds them in a real graph.
        salt: Selects other random parts.
        num_parts: Number of parts. Default: the number of ranks of the process group.
    """
    num_parts = num_parts or rank_and_size()[1]
    if how == "range":
        return PartBook.from_bounds([part * num_ids // num_parts for part in range(num_parts + 1)])
    if how == "stored":
        clusters = numbers(50, num_parts, salt)[torch.arange(num_ids) * 50 // num_ids]
        return PartBook.from_assignment(
            torch.where(numbers(num_ids, 10, salt) == 0, numbers(num_ids, num_parts, salt), clusters), num_parts
        )
    owning = max(1, num_parts - (how == "empty"))
    return PartBook.from_assignment(numbers(num_ids, owning, salt), num_parts)


def in_parts(graph: Any, how: str, peers: Peers | None = None, each: int = 1) -> PartitionedGraph:
    """Return a partitioned graph; `each` ranks store each part.

    With "metis", METIS assigns the nodes; otherwise see `assign`.
    """
    rank, world_size = (peers.rank, peers.world_size) if peers else rank_and_size()
    num_parts = world_size // each
    book = assign(graph.total_num_nodes, how, num_parts=num_parts) if how != "metis" else None
    return PartitionedGraph(cut_graph(graph, book or assign_nodes(graph, num_parts, how), rank // each), peers)


def feature_in_parts(values: torch.Tensor, how: str, salt: int, peers: Peers, each: int = 1) -> PartitionedFeature:
    """Return a partitioned feature; `each` ranks store each part."""
    book = assign(len(values), how, salt, peers.world_size // each)
    return PartitionedFeature(cut_rows(values, book, peers.rank // each), book, peers)


def parts_of(graphs: Graphs, how: str, peers: Peers, each: int = 1) -> Graphs:
    """Return a rank's parts of graphs and features; rows of nodes are cached, those of edges are not."""

    def features() -> gf.BasicFeatureStore:
        rows, others = (graphs.features().read(*key) for key in (NODE, EDGE))
        cached = gf.cpu_cached_feature(feature_in_parts(rows, how, 90, peers, each), 1 << 14)
        return gf.BasicFeatureStore({NODE: cached, EDGE: feature_in_parts(others, how, 91, peers, each)})

    return Graphs(
        lambda *dtype: in_parts(graphs.untyped(*dtype), how, peers, each),
        lambda: in_parts(graphs.typed(), how, peers, each),
        features,
    )


@contextmanager
def reading(graphs: Graphs) -> Iterator[None]:
    """Make golden pipelines built in this context read other graphs."""
    with LOCK, pytest.MonkeyPatch.context() as patch:
        for name, make in graphs._asdict().items():
            patch.setattr(golden_pipelines, name, cache(make))
        yield


def made(graphs: Graphs, names: list[str], seed: int, num_workers: int = 0) -> dict[str, list[gf.MiniBatch]]:
    """Return the first three mini-batches of pipelines over the given graphs."""
    with reading(graphs):
        pipes = {name: ALL[name]() for name in names}
    found = {}
    for name, pipe in pipes.items():
        with gf.DataLoader(pipe, num_workers, seed=seed) as loader:
            found[name] = list(islice(loader, 3))
        assert len(found[name]) == 3
    return found


def compare(how: str, names: list[str], num_workers: int = 0, each: int = 1) -> None:
    """Run a rank, with its own draws, and check that its mini-batches equal those of the whole graphs.

    Args:
        how: Assignment of nodes to ranks; see `assign`.
        names: Names of the pipelines.
        num_workers: Number of threads of each loader.
        each: Number of ranks that store each part, like those of one machine.
    """
    rank, parts = rank_and_size()[0], parts_of(GOLDEN, how, Peers(), each)
    assert_same(made(parts, names, rank, num_workers), made(GOLDEN, names, rank))
