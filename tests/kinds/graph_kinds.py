"""Graphs of every kind, which produce the same mini-batches, and all requests.

A kind converts a graph in memory to one in another place, or with its own sampling, and returns the results of a
function of that graph: one result, or one for each rank.
"""

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedGraph, Peers, cut_graph
from graphfeed.ops.memory import ReadChoice
from graphfeed.storage.graph import ByType, Hop, WalkRequest
from graphfeed.storage.graph.sampling.graph_files import is_by_page
from graphfeed.testing import limits
from tests.kinds.joint import in_threads
from tests.kinds.list_graph import FullListGraph
from tests.kinds.pipelines import random_edges

Work = Callable[[gf.SamplingGraph], Any]
Kind = Callable[[gf.FusedCSCSamplingGraph, Work], list[Any]]
Put = Callable[[torch.Tensor], torch.Tensor]


def drawn(most: int, size: int, salt: int = 0) -> torch.Tensor:
    return torch.randint(0, most, (size,), generator=torch.Generator().manual_seed(size + salt))


def plain() -> gf.FusedCSCSamplingGraph:
    """Return a graph without types."""
    weights = {"w": drawn(4, 700).float(), "mask": drawn(3, 700, 1) > 0}
    return gf.from_coo(
        random_edges(60, 60, 700, 0),
        60,
        node_attributes={"born": drawn(60, 60)},
        edge_attributes={"time": drawn(100, 700, 2), **weights},
    )


SIZES = {"user": 60, "shop": 3, "item": 40}
EDGES = {
    "user:likes:item": random_edges(60, 40, 450, 1),
    "user:knows:user": random_edges(60, 60, 350, 2),
    "shop:sells:item": torch.empty(2, 0, dtype=torch.int64),
    "item:liked_by:user": random_edges(40, 60, 400, 3),
    "item:made_for:shop": random_edges(40, 3, 50, 4),
}


def typed() -> gf.FusedCSCSamplingGraph:
    """Return a graph with types, one of them without edges; some types lack times, weights or a mask."""
    counts = {kind: ends.shape[1] for kind, ends in EDGES.items()}
    return gf.from_coo(
        EDGES,
        SIZES,
        node_attributes={"born": {kind: drawn(60, size) for kind, size in SIZES.items() if kind != "item"}},
        edge_attributes={
            "time": {kind: drawn(100, count, 2) for kind, count in counts.items() if kind != "user:likes:item"},
            "w": {kind: drawn(4, count).float() for kind, count in counts.items() if kind != "user:knows:user"},
            "mask": {kind: drawn(3, count, 1) > 0 for kind, count in counts.items() if kind != "item:made_for:shop"},
        },
    )


@dataclass(frozen=True)
class Case:
    """A graph, seeds with times and time windows, and fan-outs, the outermost first."""

    make: Callable[[], gf.FusedCSCSamplingGraph]
    seeds: ByType
    moments: ByType
    windows: ByType
    fanouts: Sequence[Sequence[Any]]


CASES = {
    "plain": Case(
        make=cache(plain),
        seeds=torch.tensor([3, 0, 3, 7]),
        moments=torch.tensor([50, 90, 20, 0]),
        windows=torch.tensor([30, 40, 0, 90]),
        fanouts=[(2, 3, -1), (-1, 4)],
    ),
    "typed": Case(
        make=cache(typed),
        seeds={"item": torch.tensor([5, 0, 5, 7]), "user": torch.arange(12)},
        moments={"item": torch.tensor([50, 90, 20, 0]), "user": torch.arange(12) * 9},
        windows={"item": torch.tensor([5, 90, 0, 30]), "user": torch.arange(12) * 4},
        fanouts=[(2, 3, -1), ([1, 2, 3, -1, 0], [60, 0, 2, 1, 3]), (2, [60, 0, 2, 1, 3])],
    ),
}
IN_TIME: list[dict[str, Any]] = [
    {"replace": False},
    {"replace": True, "probs_name": "w"},
    {"probs_name": "w"},
    {"strategy": "latest"},
    {"strategy": "latest", "probs_name": "mask"},
    {"strategy": "labor", "probs_name": "w"},
    {"strategy": "labor"},
]


EACH = 7
"""One in so many requests suffices where `test_sampling.py` tries all options."""


def place(values: ByType, put: Put) -> Any:
    return {kind: put(own) for kind, own in values.items()} if isinstance(values, dict) else put(values)


def requests_without_times() -> Iterator[dict[str, Any]]:
    """Yield the options of each way of sampling without timestamps."""
    for strategy, again, weights in product(("uniform", "labor"), (False, True), (None, "w")):
        yield {"strategy": strategy, "replace": again, "probs_name": weights}
    for strategy in ("uniform", "labor"):
        yield {"strategy": strategy, "probs_name": "mask"}
        for merged in ({"deduplicate": False}, {"only_new": True}, {"only_new": True, "disjoint": True}):
            yield {"strategy": strategy, **merged}
            yield {"strategy": strategy, **merged, "replace": True, "probs_name": "w"}


PER_SEED = 29
"""The time window of requests that are sampled with a window for each seed."""


def requests_in_time() -> Iterator[dict[str, Any]]:
    """Yield the options of temporal sampling: all with each window, and a third of them with each attribute."""
    owners_and_windows = product([("born", "time"), (None, "time"), ("born", None)], [None, 30, PER_SEED])
    for number, (owners, window) in enumerate(owners_and_windows):
        hop_time: Any = "seed" if window == PER_SEED or owners[1] is None else "edge"
        query = gf.TemporalQuery(*owners, window, hop_time, inclusive=owners[0] is None and window is not None)
        for options in IN_TIME[(number + number // 3) % 3 :: 3]:
            yield {**options, "temporal": query}
            if hop_time == "seed":
                yield {**options, "temporal": query, "only_new": True, "disjoint": True}


def requests(case: Case) -> dict[str, gf.SamplingRequest]:
    """Return all requests for a case by name."""
    asked = list(product(case.fanouts, requests_without_times()))
    for number, options in enumerate(requests_in_time()):
        asked.append((case.fanouts[number % len(case.fanouts)], options))
    found = {}
    for number, (fanouts, options) in enumerate(asked):
        shown = {name: value for name, value in options.items() if name != "temporal"}
        name = f"{number}: {fanouts} {'in time ' if 'temporal' in options else ''}{shown}"
        found[name] = gf.SamplingRequest([torch.tensor(own).reshape(-1) for own in fanouts], **options)
    return found


def sample(graph: gf.SamplingGraph, case: Case, request: gf.SamplingRequest, put: Put = torch.clone) -> Any:
    """Return the sampled hops of a case."""
    seeds, keys = place(case.seeds, put), range(7, 7 + len(request.fanouts))
    if request.temporal is not None:
        windows = place(case.windows, put) if request.temporal.pre_time_window == PER_SEED else None
        return graph.sample_hops(gf.Seeds(seeds, place(case.moments, put), windows), request, keys)
    if request.strategy == "labor":
        return graph.sample_hops(seeds, request, [(key, key + 1) for key in keys], seed2_contribution=0.3)
    return graph.sample_hops(seeds, request, keys)


PLAIN_WALKS: list[dict[str, Any]] = [
    {},
    {"probs_name": "w", "stop": 0.2},
    {"p": 0.5, "q": 2.0},
    {"p": 8.0, "q": 0.5, "probs_name": "mask", "stop": [0, 0, 0.5, 0, 0.1]},
]
THERE_AND_BACK = ["user:likes:item", "item:liked_by:user"]
TYPED_WALKS: list[dict[str, Any]] = [
    {"etypes": THERE_AND_BACK, "stop": 0.1},
    {"etypes": [*THERE_AND_BACK, *THERE_AND_BACK, "shop:sells:item"]},
    {"etypes": THERE_AND_BACK, "probs_name": "w"},
    {"etypes": THERE_AND_BACK, "p": 4.0, "q": 0.25},
]


def operations(case: Case, graph: gf.SamplingGraph) -> dict[str, Any]:
    """Return the results of all operations of a graph, with some of the requests."""
    found = {name: sample(graph, case, request) for name, request in list(requests(case).items())[::EACH]}
    fanouts = [torch.tensor(number).reshape(-1) for number in case.fanouts[-1]]
    seeds = case.seeds
    found["in-edges"] = graph.in_subgraph(seeds)
    found["one hop"] = graph.sample_neighbors(seeds, fanouts[1], True, "w", key=5)
    found["one hop, LABOR"] = graph.sample_layer_neighbors(seeds, fanouts[1], random_seed=[5])
    found["sizes"] = [graph.num_nodes, graph.num_edges, graph.edge_types]
    found["PageRank"] = [graph.page_rank(seeds, 7, bound=1e-5, per_type=per_type) for per_type in (False, True)]
    if isinstance(seeds, torch.Tensor):
        found["walks that stay"] = graph.random_walks(seeds, 9, key=5)
        found["negatives"] = graph.sample_negative_edges_uniform(None, seeds.reshape(-1, 2), 3, key=5)
    starts, of_walks = (
        (seeds, PLAIN_WALKS) if isinstance(seeds, torch.Tensor) else ({"item": seeds["item"]}, TYPED_WALKS)
    )
    for options in of_walks:
        walks = graph.sample_walks(starts, WalkRequest(5, 3, **options), key=5, edge_ids=True)
        found[f"walks {options}"] = [walks.nodes, walks.edges]
    return found


class OneHop(gf.SamplingGraph):
    """Samples one hop by another graph, and inherits everything else."""

    num_nodes: Any = 0
    num_edges: Any = 0

    def __init__(self, graph: gf.FusedCSCSamplingGraph) -> None:
        self.graph, self.num_nodes, self.num_edges = graph, graph.num_nodes, graph.num_edges

    def sample_neighbors(self, *arguments: Any, **options: Any) -> gf.SampledSubgraph:
        hop: gf.SampledSubgraph = self.graph.sample_neighbors(*arguments, **options)
        return hop

    def sample_layer_neighbors(self, *arguments: Any, **options: Any) -> gf.SampledSubgraph:
        hop: gf.SampledSubgraph = self.graph.sample_layer_neighbors(*arguments, **options)
        return hop

    def pick(self, nodes: ByType, hop: Hop) -> Any:
        return super().pick(nodes, hop) if hop.request.temporal is None else self.graph.pick(nodes, hop)


class OwnPick(OneHop):
    """Picks the edges of each hop by another graph."""

    def pick(self, nodes: ByType, hop: Hop) -> Any:
        return self.graph.pick(nodes, hop)


def in_a_file(whole: gf.FusedCSCSamplingGraph, work: Work) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        whole.save(Path(folder) / "graph")
        return [work(gf.load_graph(Path(folder) / "graph"))]


def by_page(whole: gf.FusedCSCSamplingGraph, work: Work) -> list[Any]:
    """Read a file as if none of its pages were ever in memory."""

    def work_by_page(graph: gf.SamplingGraph) -> Any:
        assert isinstance(graph, gf.FusedCSCSamplingGraph)
        assert is_by_page(graph)
        return work(graph)

    with limits(memory_bytes=0), patch.object(ReadChoice, "decide", lambda *arguments: None):
        return in_a_file(whole, work_by_page)


def by_name(whole: gf.FusedCSCSamplingGraph, work: Work) -> list[Any]:
    """Put a graph into shared memory, where it stays until the first object is deleted."""
    name = f"test-kinds-{os.getpid()}"
    shared = whole.copy_to_shared_memory(name)
    return [work(graph) for graph in (shared, gf.load_from_shared_memory(name))]


def without_a_map(whole: gf.FusedCSCSamplingGraph, work: Work) -> list[Any]:
    """Leave no memory for a map of nodes."""
    with limits(node_map_bytes=8):
        return [work(whole)]


def in_parts(whole: gf.FusedCSCSamplingGraph, work: Work, *, num_parts: int) -> list[Any]:
    """Partition a graph over two ranks, which own one part each, or the same part."""

    def work_of(rank: int, peers: Peers) -> Any:
        parts = PartBook.from_assignment(torch.arange(whole.total_num_nodes) % num_parts, num_parts)
        return work(PartitionedGraph(cut_graph(whole, parts, rank * num_parts // 2), peers))

    return in_threads(2, work_of)


KINDS: dict[str, Kind] = {
    "unpickled": lambda whole, work: [work(pickle.loads(pickle.dumps(whole)))],
    "in a file": in_a_file,
    "in a file, by page": by_page,
    "in shared memory": by_name,
    "hop by hop": lambda whole, work: [work(OneHop(whole))],
    "by its own pick": lambda whole, work: [work(OwnPick(whole))],
    "without a map": without_a_map,
    "in one part": partial(in_parts, num_parts=1),
    "in parts": partial(in_parts, num_parts=2),
    "in lists": lambda whole, work: [work(FullListGraph(whole))],
}
"""Kinds of graphs on the CPU; the last one has no types."""
