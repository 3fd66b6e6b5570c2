"""A graph over a Python dict of lists, as a user would write one, works with every sampler."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import torch

import graphfeed as gf
from graphfeed.ops.random import bounded, draw
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import digests

Edge = tuple[int, int]
"""A neighbour, and the id of the edge."""


class DictGraph(gf.SamplingGraph):
    """All that a user has to write: two numbers and one hop."""

    num_nodes = num_edges = 0

    def __init__(self, neighbors: dict[int, list[Edge]]) -> None:
        self.neighbors = neighbors
        self.num_nodes = len(neighbors)
        self.num_edges = sum(map(len, neighbors.values()))

    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        own = gf.draw_key() if key is None else key
        assert isinstance(seeds, torch.Tensor)
        rows = [choose(self.neighbors[node], int(fanouts), replace, own, node) for node in seeds.tolist()]
        return as_hop(seeds, rows)


class FullDictGraph(DictGraph):
    """The same with LABOR, and with the id of an edge for its time."""

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> gf.SampledSubgraph:
        key = gf.draw_key() if random_seed is None else int(random_seed[0])
        assert isinstance(seeds, torch.Tensor)
        variates = [sorted(self.neighbors[node], key=lambda edge: draw(key, edge[0], 0)) for node in seeds.tolist()]
        return as_hop(seeds, [row[: int(fanouts)] for row in variates])

    def temporal_sample_hops(
        self, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest, keys: Sequence[int]
    ) -> list[gf.SampledSubgraph]:
        hops: list[gf.SampledSubgraph] = []
        nodes: Any = seeds
        times: Any = seeds_timestamp
        for fanout, key in zip(reversed(request.fanouts), keys, strict=True):
            rows = []
            for node, time in zip(nodes.tolist(), times.tolist(), strict=True):
                before = [edge for edge in self.neighbors[node] if edge[1] < time]
                rows.append(choose(before, int(fanout), request.replace, key, node))
            hop = as_hop(nodes, rows)
            csc: Any = hop.sampled_csc
            ids, csc, times = gf.compact_csc_format(csc, nodes, times)
            hops.append(gf.SampledSubgraph(csc, nodes, ids, hop.original_edge_ids))
            nodes = ids
        return hops[::-1]


def choose(row: list[Edge], fanout: int, replace: bool, key: int, node: int) -> list[Edge]:
    if fanout < 0 or not row:
        return row
    if replace:
        return [row[bounded(draw(key, node, number), len(row))] for number in range(fanout)]
    left = list(row)
    return [left.pop(bounded(draw(key, node, number), len(left))) for number in range(min(fanout, len(row)))]


def as_hop(seeds: torch.Tensor, rows: list[list[Edge]]) -> gf.SampledSubgraph:
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    edges = torch.tensor([edge for row in rows for edge in row], dtype=torch.int64).reshape(-1, 2)
    return gf.SampledSubgraph(gf.CSCFormatBase(indptr, edges[:, 0].contiguous()), seeds, None, edges[:, 1].contiguous())


NODES = 30
ENDS = torch.randint(0, NODES, (2, 200), generator=torch.Generator().manual_seed(0)).tolist()
NEIGHBORS = {node: [(ENDS[0][edge], edge) for edge in range(200) if ENDS[1][edge] == node] for node in range(NODES)}
GRAPH, FULL = DictGraph(NEIGHBORS), FullDictGraph(NEIGHBORS)


def seeds(*names: str, pairs: bool = False) -> gf.Datapipe:
    columns = [torch.arange(NODES), torch.arange(NODES) * 7 % 200]
    items = torch.tensor(ENDS).T.contiguous() if pairs else tuple(columns[: len(names)])
    return gf.ItemSampler(gf.ItemSet(items, names=names), batch_size=7, shuffle=True)


NODE_SEEDS, EDGE_SEEDS, TIMED_SEEDS = seeds("seeds"), seeds("seeds", pairs=True), seeds("seeds", "timestamp")
TIME: dict[str, Any] = {"edge_timestamp_attr_name": "time"}
PIPELINES: dict[str, gf.Datapipe] = {
    "neighbor": NODE_SEEDS.sample_neighbor(GRAPH, [3, -1]),
    "neighbor, replace": NODE_SEEDS.sample_neighbor(GRAPH, [3, 2], replace=True),
    "neighbor, each edge a row": NODE_SEEDS.sample_neighbor(GRAPH, [3, 2], deduplicate=False),
    "per layer": NODE_SEEDS.sample_per_layer(GRAPH.sample_neighbors, 3).compact_per_layer(True),
    "per layer, each edge a row": NODE_SEEDS.sample_per_layer(GRAPH.sample_neighbors, 3).compact_per_layer(False),
    "in subgraph": NODE_SEEDS.sample_in_subgraph(GRAPH),
    "negatives": EDGE_SEEDS.sample_uniform_negative(GRAPH, 2).sample_neighbor(GRAPH, [3]),
    "excluded": EDGE_SEEDS.sample_neighbor(GRAPH, [3]).exclude_seed_edges(),
    "LABOR": NODE_SEEDS.sample_layer_neighbor(FULL, [3, 2]),
    "LABOR, each edge a row": NODE_SEEDS.sample_layer_neighbor(FULL, [3, 2], deduplicate=False),
    "LABOR, per layer": NODE_SEEDS.sample_per_layer(FULL.sample_layer_neighbors, 3).compact_per_layer(True),
    "in time": TIMED_SEEDS.temporal_sample_neighbor(FULL, [3, 2], **TIME),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_minibatches_are_the_same_on_any_number_of_workers(name: str) -> None:
    pipe = PIPELINES[name]
    expected = digests(pipe.with_seed(5))
    assert digests(pickle.loads(pickle.dumps(pipe)).with_seed(5)) == expected
    for workers in (0, 1, 3):
        with gf.DataLoader(pipe, num_workers=workers, seed=5) as loader:
            assert digests(loader) == expected


@pytest.mark.parametrize("name", PIPELINES)
def test_edges_are_those_of_the_graph(name: str) -> None:
    for batch in PIPELINES[name]:
        for hop in batch.sampled_subgraphs:
            sources = hop.original_row_node_ids[hop.sampled_csc.indices].tolist()
            places = gf.expand_indptr(hop.sampled_csc.indptr, torch.int64)
            destinations = hop.original_column_node_ids[places].tolist()
            for source, destination, edge in zip(sources, destinations, hop.original_edge_ids.tolist(), strict=True):
                assert (source, edge) in NEIGHBORS[destination]


def test_all_in_edges_are_those_of_fanout_minus_one() -> None:
    assert digests(NODE_SEEDS.sample_neighbor(GRAPH, [-1])) == digests(PIPELINES["in subgraph"])


LACKING: dict[str, Callable[[], gf.Datapipe]] = {
    "sample_layer_neighbors": lambda: NODE_SEEDS.sample_layer_neighbor(GRAPH, [3]),
    "temporal_sample_hops": lambda: TIMED_SEEDS.temporal_sample_neighbor(GRAPH, [3], **TIME),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_the_graph_lacks_is_named(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"DictGraph has no {name}; write it, or sample with sample_neighbor"):
        next(iter(LACKING[name]()))


def test_fanouts_are_checked_when_the_stage_is_built() -> None:
    with pytest.raises(ValueError, match=r"fanouts\[0\] has 2 numbers; give one fan-out for all edge types"):
        NODE_SEEDS.sample_neighbor(GRAPH, [[1, 2]])
    with pytest.raises(ValueError, match=r"fanouts\[0\] has 2 numbers"):
        NODE_SEEDS.sample_per_layer(GRAPH.sample_neighbors, [1, 2])


class Recording(DictGraph):
    """Keeps what it was asked to prepare for."""

    heard: ClassVar[list[tuple[str, SamplingRequest]]] = []

    def validate(self, request: SamplingRequest) -> None:
        super().validate(request)
        self.heard.append(("validate", request))

    def prepare(self, request: SamplingRequest) -> None:
        self.heard.append(("prepare", request))


def test_a_graph_may_validate_a_request_and_prepare_for_it_before_it_travels() -> None:
    graph = Recording(NEIGHBORS)
    stage = NODE_SEEDS.sample_neighbor(graph, [3], replace=True)
    other = NODE_SEEDS.sample_per_layer(graph.sample_neighbors, 4)
    assert [(name, int(request.fanouts[0])) for name, request in graph.heard] == [("validate", 3), ("validate", 4)]
    graph.heard.clear()
    next(iter(other))
    assert graph.heard == []
    for pipe in (stage, other):
        pickle.dumps(pipe)
    assert [name for name, _ in graph.heard] == ["prepare", "prepare"]
    assert graph.heard[0][1].replace is True


def test_it_prints_its_class() -> None:
    assert repr(GRAPH) == "DictGraph()"
    assert repr(NODE_SEEDS.sample_neighbor(GRAPH, [3])).endswith("NeighborSampler(graph=DictGraph(), fanouts=[3])")


def test_an_option_that_it_ignores_is_refused_when_the_stage_is_made() -> None:
    class Uniform(DictGraph):
        def sample_neighbors(
            self,
            seeds: ByType,
            fanouts: torch.Tensor,
            replace: bool = False,
            probs_name: str | None = None,
            *,
            key: int | None = None,
        ) -> gf.SampledSubgraph:
            assert all(probs_name in (None, "weight") for _ in self.neighbors)
            return super().sample_neighbors(seeds, fanouts, key=key)

    with pytest.raises(ValueError, match=r"sample_neighbors of DictGraph ignores probs_name.*leave prob_name out"):
        NODE_SEEDS.sample_neighbor(GRAPH, [3], prob_name="weight")
    with pytest.raises(ValueError, match="sample_neighbors of Uniform ignores replace, which the sampler asks for"):
        NODE_SEEDS.sample_neighbor(Uniform(NEIGHBORS), [3], replace=True)
    NODE_SEEDS.sample_neighbor(GRAPH, [3], replace=True)
    NODE_SEEDS.sample_neighbor(Uniform(NEIGHBORS), [3], prob_name="weight")  # a function inside reads it
