"""Temporal sampling, per sampled edge, against the uniform sampler without time.

Each edge has a random time, and each seed one in the later half. The graph is sampled twice: with
each node's edges sorted by time, as an edge list in the order of time makes them, and in any order.
Nodes are not deduplicated, so a mini-batch has more rows, and there is no map from node to position.
A further case has times that pile up at the end of each column.
"""

import time

import numpy as np
import torch

import graphfeed as gf
from benchmarks.batches import per_edge
from benchmarks.graphs import load_edges
from benchmarks.limits import Array
from benchmarks.scale import Scale
from benchmarks.table import Row, compare
from benchmarks.timing import Times
from graphfeed import ops
from graphfeed.storage.graph.sampling.temporal_sampling import order_for
from graphfeed.storage.graph.sampling_request import SamplingRequest

FANOUTS = (5, 10, 15)
GOAL = 1.5
SPAN = 1 << 40
WINDOW = SPAN // 4
UNIFORM = "uniform sampler, without time"
IN_ORDER = "edges sorted by time"
ANY_ORDER = "edges in any order"


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    return f"temporal sampling: {scale.products.name}, per sampled edge; ratio to the uniform sampler"


def measure(scale: Scale) -> list[Row]:
    """Time each way of temporal sampling on the products-shaped graph."""
    indptr, indices = load_edges(scale.products, scale.cache)
    graph = make_graph(indptr, indices)
    rng = np.random.default_rng(0)
    seeds = torch.from_numpy(rng.integers(0, len(indptr) - 1, scale.batch_size * scale.repeats))
    moments = torch.from_numpy(rng.integers(SPAN // 2, SPAN, len(seeds)))
    items = gf.ItemSampler(gf.ItemSet((seeds, moments), names=("seeds", "timestamp")), batch_size=scale.batch_size)
    nodes = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=scale.batch_size)
    pipes: dict[str, gf.Datapipe] = {UNIFORM: nodes.sample_neighbor(graph, FANOUTS)}
    for name, attribute in ((IN_ORDER, "rising"), (ANY_ORDER, "time")):
        pipe = items.temporal_sample_neighbor(graph, FANOUTS, edge_timestamp_attr_name=attribute)
        pipes[name] = pipe
        pipes[f"{name}, the latest"] = pipe.changed(strategy="latest")
        pipes[f"{name}, a window of a quarter"] = pipe.changed(pre_time_window=WINDOW)
    pipes[f"{IN_ORDER}, most of them late"] = items.temporal_sample_neighbor(
        graph, FANOUTS, edge_timestamp_attr_name="late"
    )
    pipes[f"{IN_ORDER}, LABOR"] = items.temporal_sample_layer_neighbor(
        graph, FANOUTS, edge_timestamp_attr_name="rising"
    )
    once = prepare(graph)
    times, counts = per_edge(pipes, scale.repeats)
    edges = [Row(f"edges: {name}", "thousand", counts[name]) for name in (UNIFORM, IN_ORDER)]
    goals = dict.fromkeys((IN_ORDER, ANY_ORDER), GOAL)
    return [*compare(times, UNIFORM, "ns per edge", goals=goals), *edges, *once]


def make_graph(indptr: Array, indices: Array) -> gf.FusedCSCSamplingGraph:
    """Return the graph with times in any order, the same in order, and times of which most are late."""
    starts = torch.from_numpy(indptr)
    moments = torch.from_numpy(np.random.default_rng(1).integers(0, SPAN, len(indices)))
    rising = ops.order_by_time(starts, moments).times
    assert rising is not None
    late = np.empty(len(indices), np.int64)
    late[:] = SPAN * (rising.numpy() / SPAN) ** 0.25
    attributes = {"time": moments, "rising": rising, "late": torch.from_numpy(late)}
    return gf.fused_csc_sampling_graph(starts, torch.from_numpy(indices), edge_attributes=attributes)


def prepare(graph: gf.FusedCSCSamplingGraph) -> list[Row]:
    """Return the cost of sorting the edges by time, once per graph."""
    found = []
    for name, attribute in ((IN_ORDER, "rising"), (ANY_ORDER, "time")):
        start = time.process_time()
        request = SamplingRequest([], temporal=gf.TemporalQuery(edge_timestamp_attr_name=attribute))
        columns = order_for(graph, request, windowed=False)
        seconds = time.process_time() - start
        made = (columns.times, columns.order if columns.links is None else columns.links)
        size = 0 if columns.order is None else sum(part.nbytes for part in made if part is not None)
        found.append(Row(f"once: {name}", "s", Times([seconds])))
        found.append(Row(f"memory: {name}", "bytes per edge", Times([size / graph.total_num_edges])))
    return found
