"""Temporal sampling of a graph with types, per sampled edge: all hops in one call relative to hop by hop.

The graph is that of `benchmarks.typed`. Each edge and each node has a random time, and each seed one in the later half.
Both ways sample the same edges.
"""

from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks.batches import per_edge
from benchmarks.scale import Scale
from benchmarks.table import Row, compare
from benchmarks.typed import EACH, FANOUTS, OneHopGraph, make_graph
from graphfeed.storage.graph import ByType, Hop, Picked

SPAN = 1 << 40
WINDOW = SPAN // 4
ONE_FANOUT = "times of edges"
GOAL = 1 / 1.15


class HopAfterHop(OneHopGraph):
    """Samples the hops of another graph one after the other."""

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Return one hop of the other graph."""
        return self.graph.pick(nodes, hop)


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    size = f"1/{scale.mag_divisor} of " if scale.mag_divisor > 1 else ""
    return f"temporal sampling: {size}ogbn-mag's shape, per sampled edge, fan-outs {FANOUTS}; ratio to hop after hop"


def measure(scale: Scale) -> list[Row]:
    """Time each way of temporal sampling, in one call and hop by hop."""
    graph = with_times(make_graph(scale.mag_divisor))
    size = graph.num_nodes["paper"]  # type: ignore[index]
    rng = np.random.default_rng(1)
    ids = torch.from_numpy(rng.integers(0, size, scale.batch_size * scale.repeats))
    moments = torch.from_numpy(rng.integers(SPAN // 2, SPAN, len(ids)))
    papers = gf.ItemSet((ids, moments), names=("seeds", "timestamp"))
    items = gf.ItemSampler(gf.HeteroItemSet({"paper": papers}), batch_size=scale.batch_size)
    return in_both_ways(items, graph, scale.repeats)


def in_both_ways(items: gf.Datapipe, graph: gf.FusedCSCSamplingGraph, rounds: int) -> list[Row]:
    """Time each way of sampling around some items."""
    pipes = pipelines(items, graph)
    slow = {f"{name}, hop after hop": pipe.changed(graph=HopAfterHop(graph)) for name, pipe in pipes.items()}
    times, counts = per_edge({**pipes, **slow}, rounds)
    rows = []
    for name in pipes:
        pair = {own: times[own] for own in (name, f"{name}, hop after hop")}
        rows += compare(pair, f"{name}, hop after hop", "ns per edge", goals={name: GOAL} if name == ONE_FANOUT else {})
    return [*rows, Row(f"edges: {ONE_FANOUT}", "thousand", counts[ONE_FANOUT])]


def with_times(graph: gf.FusedCSCSamplingGraph) -> gf.FusedCSCSamplingGraph:
    """Return the graph with a time of each edge and each node, and weights."""
    rng = np.random.default_rng(2)
    graph.add_edge_attribute("time", torch.from_numpy(rng.integers(0, SPAN, graph.total_num_edges)))
    graph.add_edge_attribute("weight", torch.from_numpy(rng.random(graph.total_num_edges, dtype=np.float32)))
    graph.add_node_attribute("born", torch.from_numpy(rng.integers(0, SPAN // 2, graph.total_num_nodes)))
    return graph


def pipelines(items: gf.Datapipe, graph: gf.FusedCSCSamplingGraph) -> dict[str, Any]:
    """Return each way of temporal sampling."""
    pipe = items.temporal_sample_neighbor(graph, FANOUTS, edge_timestamp_attr_name="time")
    each = [torch.full((len(graph.edge_types),), EACH)] * len(FANOUTS)
    return {
        ONE_FANOUT: pipe,
        "a fan-out each": pipe.changed(fanouts=each),
        "the latest": pipe.changed(strategy="latest"),
        "the times of edges continue": pipe.changed(hop_time="edge"),
        "a window of a quarter": pipe.changed(pre_time_window=WINDOW),
        "times of nodes too, a window": pipe.changed(pre_time_window=WINDOW, node_timestamp_attr_name="born"),
        "weights": pipe.changed(prob_name="weight"),
        "LABOR": items.temporal_sample_layer_neighbor(graph, FANOUTS, edge_timestamp_attr_name="time"),
    }
