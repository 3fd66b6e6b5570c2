"""Sampling a graph with types, per sampled edge, against the same nodes and edges without types.

The graph has the node types, the edge types and the average degrees of ogbn-mag (Hu and others: Open
Graph Benchmark, NeurIPS 2020), each relation in both directions. With one fan-out for all edge types
the two samplers choose the very same edges, so what types cost is all that differs. A program's own
calls, and a graph that offers one hop only, relabel after each hop. Features have 64 floats.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks.batches import per_edge
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import one_core

NODES = {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field_of_study": 59_965}
EDGES = {
    "author:writes:paper": 7_145_660,
    "paper:cites:paper": 5_416_271,
    "author:affiliated_with:institution": 1_043_998,
    "paper:has_topic:field_of_study": 7_505_078,
}
FANOUTS = (10, 10)
EACH = 5
"""Fan-out if each edge type has its own."""
FEATURES = 64
UNTYPED = "without types"
TYPED = "with types"
ONE_HOP = "a graph that offers one hop, without types"
TYPED_ONE_HOP = "a graph that offers one hop, with types"
OWN_CALLS = "a program's own calls for each hop, without types"
TYPED_OWN_CALLS = "a program's own calls for each hop, with types"
GOALS = {TYPED: 1.6, ONE_HOP: 1.4, OWN_CALLS: 2.0}


class OneHopGraph(gf.SamplingGraph):
    """Exposes the hops of another graph one by one."""

    def __init__(self, graph: gf.FusedCSCSamplingGraph) -> None:
        self.graph = graph
        self.sizes = graph.num_nodes, graph.num_edges

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The numbers of the other graph."""
        return self.sizes[0]

    @property
    def num_edges(self) -> int | dict[str, int]:
        """The same of the edges."""
        return self.sizes[1]

    def sample_neighbors(self, *args: Any, **options: Any) -> gf.SampledSubgraph:
        """Return one hop of the other graph."""
        hop: gf.SampledSubgraph = self.graph.sample_neighbors(*args, **options)
        return hop


class OwnCalls(gf.SubgraphSampler):
    """Samples and relabels each hop, as programs for GraphBolt do."""

    graph: gf.FusedCSCSamplingGraph

    def sample_subgraphs(self, seeds: Any, *_: Any) -> tuple[Any, list[gf.SampledSubgraph]]:
        """Return the input nodes, and one subgraph per hop."""
        layers: list[gf.SampledSubgraph] = []
        for fanout in reversed(FANOUTS):
            hop = self.graph.sample_neighbors(seeds, torch.tensor([fanout]))
            rows = gf.unique_and_compact_csc_formats(hop.sampled_csc, seeds)
            layers.insert(0, gf.SampledSubgraph(rows[1], seeds, rows[0], hop.original_edge_ids))
            seeds = rows[0]
        return seeds, layers


def report(scale: Scale) -> Iterator[str]:
    """Yield the table."""
    with one_core():
        yield render(title(scale), measure(scale))


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    size = f"1/{scale.mag_divisor} of " if scale.mag_divisor > 1 else ""
    return f"sampling: {size}ogbn-mag's shape, by the sampled edge, fan-outs {FANOUTS}; ratio to the same without types"


def make_graph(divisor: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph of the shape, scaled down by a factor; hubs are spread over the ids."""
    rng = np.random.default_rng(0)
    sizes = {kind: max(count // divisor, 2) for kind, count in NODES.items()}
    names = {kind: rng.permutation(size) for kind, size in sizes.items()}
    edges = {}
    for edge_type, count in EDGES.items():
        source, relation, end = edge_type.split(":")
        ids = [
            names[kind][(rng.random(count // divisor) ** 2 * sizes[kind]).astype(np.int64)] for kind in (source, end)
        ]
        edges[edge_type] = ids[0], ids[1]
        edges[f"{end}:rev_{relation}:{source}"] = ids[1], ids[0]
    return gf.from_coo(edges, sizes)


def measure(scale: Scale) -> list[Row]:
    """Time each kind of sampling on the two graphs."""
    typed = make_graph(scale.mag_divisor)
    plain = gf.fused_csc_sampling_graph(typed.csc_indptr, typed.indices, edge_attributes=typed.edge_attributes)
    size = typed.num_nodes["paper"]  # type: ignore[index]
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, size, scale.batch_size * scale.repeats))
    papers = gf.ItemSet(ids, names="seeds")
    seeds = gf.ItemSampler(papers, batch_size=scale.batch_size)  # papers come first: their ids are the same in both
    kinds = gf.ItemSampler(gf.HeteroItemSet({"paper": papers}), batch_size=scale.batch_size)
    each = [torch.full((len(typed.edge_types),), EACH)] * len(FANOUTS)
    stages: dict[str, gf.Datapipe] = {
        UNTYPED: seeds.sample_neighbor(plain, FANOUTS),
        TYPED: kinds.sample_neighbor(typed, FANOUTS),
        "with types, a fan-out each": kinds.sample_neighbor(typed, each),
        "with types, with replacement": kinds.sample_neighbor(typed, FANOUTS, replace=True),
        "LABOR, without types": seeds.sample_layer_neighbor(plain, FANOUTS),
        "LABOR, with types": kinds.sample_layer_neighbor(typed, FANOUTS),
        ONE_HOP: seeds.sample_neighbor(OneHopGraph(plain), FANOUTS),
        TYPED_ONE_HOP: kinds.sample_neighbor(OneHopGraph(typed), FANOUTS),
        OWN_CALLS: OwnCalls(seeds, plain),
        TYPED_OWN_CALLS: OwnCalls(kinds, typed),
        "with types, and features": with_features(kinds.sample_neighbor(typed, FANOUTS), typed),
    }
    times, counts = per_edge(stages, len(kinds))
    edges = Row("edges: with types", "thousand", counts[TYPED])
    return [*compare(times, UNTYPED, "ns per edge", goals=GOALS), edges]


def with_features(pipe: gf.Datapipe, graph: gf.FusedCSCSamplingGraph) -> gf.Datapipe:
    """Fetch a feature of every node type after a sampler."""
    sizes: Any = graph.num_nodes
    store = gf.BasicFeatureStore(
        {("node", kind, "x"): gf.TorchBasedFeature(torch.rand(size, FEATURES)) for kind, size in sizes.items()}
    )
    pipe_with: gf.Datapipe = pipe.fetch_feature(store, node_feature_keys={kind: ["x"] for kind in sizes})
    return pipe_with
