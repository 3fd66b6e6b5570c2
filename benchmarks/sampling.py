"""Neighbour sampling against the random reads that it needs, and against plain NumPy.

A mini-batch needs one read of `indptr` per seed of a hop, and per sampled edge one read of `indices`
and one of the map from node to position. The limit is the time of equally many prefetched reads at
random places of the same three arrays (the map has 4 bytes per node). "The same reads" repeats the
very places of the mini-batch, some of which share a cache line.

LABOR needs other reads: of each column with more edges than its fan-out it has to see every edge,
unless the column is in the index of high-degree columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks import links, plain, temporal, typed, typed_links, typed_temporal, weighted
from benchmarks.graphs import Shape, load_edges
from benchmarks.limits import Array, RandomReads, sum_reads
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import Case, Times, in_turn, one_core
from graphfeed import ops
from graphfeed.ops.cpu.jit import Ids, Int64s, kernel
from graphfeed.ops.cpu.sampling.passes.marks import CACHE_LINE, COLUMNS_AHEAD, prefetch_column

FANOUTS = (5, 10, 15)
"""Fan-outs, outermost hop first: 15 at the seeds, and every hop from all nodes found so far."""
GOAL = 1.5
LABOR = "graphfeed, LABOR"
"""Fewer nodes and edges than the others, but picked from all edges of each column."""
COLUMNS = "the columns that LABOR chooses from, read whole"
UNINDEXED = "those of them that are not indexed, one read per cache line"
"""Bound of LABOR: the variate of every edge is drawn for each mini-batch."""
LABOR_GOAL = 2.0


@dataclass(frozen=True)
class Variant:
    """A graph and a way of sampling."""

    shape: Shape
    ids: type[np.int64 | np.int32] = np.int64
    weighted: bool = False
    replace: bool = False

    has_goal: bool = False
    """Weights and replacement need more than reads, and a small graph fits the caches."""

    @property
    def title(self) -> str:
        """First line of the table."""
        words = [self.shape.name, f"{np.dtype(self.ids).name} ids"]
        words += ["weighted"] if self.weighted else []
        words += ["with replacement"] if self.replace else []
        return f"sampling: {', '.join(words)}; ratio to the random reads that it needs"


@dataclass(frozen=True)
class Places:
    """Positions, int64, that one mini-batch reads in each of the three arrays."""

    columns: Array
    edges: Array
    nodes: Array

    @property
    def count(self) -> int:
        """The number of reads."""
        return len(self.columns) + len(self.edges) + len(self.nodes)


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each kind of graph and of sampling, and three per sampled edge."""
    products = Variant(scale.products, has_goal=True)
    for variant in (
        products,
        replace(products, ids=np.int32),
        Variant(scale.products, replace=True),
        Variant(scale.products, weighted=True),
        Variant(scale.arxiv),
    ):
        with one_core():
            yield render(variant.title, measure(variant, scale))
    with one_core():
        yield render(weighted.title(scale), weighted.measure(scale))
    with one_core():
        yield render(links.title(scale), links.measure(scale))
    with one_core():
        yield render(temporal.title(scale), temporal.measure(scale))
    with one_core():
        yield render(typed.title(scale), typed.measure(scale))
        yield render(typed_links.title(scale), typed_links.measure(scale))
        yield render(typed_temporal.title(scale), typed_temporal.measure(scale))


def measure(variant: Variant, scale: Scale) -> list[Row]:
    """Time graphfeed, the limits and plain NumPy on the same seeds."""
    indptr, indices = load_edges(variant.shape, scale.cache)
    sources = indices.astype(variant.ids, copy=False)
    del indices
    pipe = make_pipe(variant, indptr, sources, scale)
    labor: Any = pipe.datapipe.sample_layer_neighbor(
        pipe.graph, FANOUTS, variant.replace, "weight" if variant.weighted else None
    )
    batches = list(pipe.datapipe)
    shared = [labor(batch) for batch in batches]
    columns = [columns_of(batch, indptr) for batch in shared]
    indexed = np.zeros(len(indptr) - 1, np.bool_)
    if not (variant.weighted or variant.replace):
        indexed[np.asarray(ops.build_high_degree_index(*map(torch.from_numpy, (indptr, sources))).columns)] = True
    unindexed = [[nodes[~indexed[nodes]] for nodes in hops] for hops in columns]
    places = [places_of(pipe(batch), sources) for batch in batches]
    arrays = (indptr, sources, np.full(len(indptr) - 1, -1, np.int32))
    reads = [RandomReads(array, seed) for seed, array in enumerate(arrays)]
    cases: dict[str, Case] = {
        "graphfeed": lambda number: pipe(batches[number]),
        LABOR: lambda number: labor(batches[number]),
        COLUMNS: lambda number: sum(sum_columns(indptr, sources, nodes) for nodes in columns[number]),
        UNINDEXED: lambda number: sum(read_columns(indptr, sources, nodes) for nodes in unindexed[number]),
        "random reads": lambda number: read_at_random(reads, places[number]),
        # Half a cycle away, so that no cache still holds the lines from the batch itself.
        "the same reads": lambda number: replay(arrays, places[number - len(places) // 2]),
    }
    if not variant.weighted:
        sampler = plain.Sampler(indptr, sources, replace=variant.replace)
        seeds = [np.asarray(batch.seeds) for batch in batches]
        cases["plain NumPy"] = lambda number: sampler.sample(seeds[number], FANOUTS[::-1])
    times = in_turn(cases, len(batches))
    edges = [
        len(place.edges) / len(places_of(batch, sources).edges) for place, batch in zip(places, shared, strict=True)
    ]
    return [*limit_rows(reads, places, times), *rows(variant, times), *labor_rows(variant, times, edges)]


def make_pipe(variant: Variant, indptr: Array, sources: Array, scale: Scale) -> gf.NeighborSampler:
    """Return the sampling stage after an item sampler, with one mini-batch per round."""
    weights = {"weight": torch.rand(len(sources))} if variant.weighted else None
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(sources), edge_attributes=weights)
    rng = np.random.default_rng(0)
    size = min(scale.batch_size * scale.repeats, len(indptr) - 1)
    seeds = rng.choice(len(indptr) - 1, size, replace=False).astype(variant.ids)
    items = gf.ItemSet((torch.from_numpy(seeds),), names=("seeds",))
    return gf.NeighborSampler(
        gf.ItemSampler(items, batch_size=scale.batch_size),
        graph,
        fanouts=FANOUTS,
        replace=variant.replace,
        prob_name="weight" if variant.weighted else None,
    )


def places_of(batch: gf.MiniBatch, sources: Array) -> Places:
    """Return the positions that the sampler must read for a mini-batch."""
    hops = reversed(batch.sampled_subgraphs or [])
    ids = [(hop.original_column_node_ids, hop.original_edge_ids) for hop in hops]
    columns, edges = (np.concatenate(parts) for parts in zip(*ids, strict=True))
    return Places(*(part.astype(np.int64, copy=False) for part in (columns, edges, sources[edges])))


def columns_of(batch: gf.MiniBatch, indptr: Array) -> list[Array]:
    """Return the columns of each hop that have more edges than its fan-out."""
    found = []
    for hop, fanout in zip(batch.sampled_subgraphs or [], FANOUTS, strict=True):
        nodes = np.asarray(hop.original_column_node_ids)
        found.append(nodes[indptr[nodes + 1] - indptr[nodes] > fanout])
    return found


@kernel
def sum_columns(indptr: Int64s, sources: Ids, nodes: Ids) -> int:
    """Add up the sources of all edges of some columns."""
    total = 0
    for node in nodes:
        for edge in range(indptr[node], indptr[node + 1]):
            total += sources[np.uintp(edge)]
    return total


@kernel
def read_columns(indptr: Int64s, sources: Ids, nodes: Ids) -> int:
    """Read each cache line of some columns once, and prefetch the beginning of a column before its turn."""
    step = CACHE_LINE // sources.itemsize
    total = 0
    for number in range(len(nodes)):
        coming = nodes[min(number + COLUMNS_AHEAD, len(nodes) - 1)]
        prefetch_column(sources, indptr[coming], indptr[coming + 1] - indptr[coming])  # type: ignore[no-untyped-call]
        for edge in range(indptr[nodes[number]], indptr[nodes[number] + 1], step):
            total += sources[np.uintp(edge)]
    return total


def read_always(read: RandomReads, count: int) -> Case:
    """Return a case of `count` reads per round."""
    return lambda _: read.run(count)


def read_at_random(reads: list[RandomReads], places: Places) -> int:
    """Read equally often from each array, at random positions."""
    counts = (len(places.columns), len(places.edges), len(places.nodes))
    return sum(read.run(count) for read, count in zip(reads, counts, strict=True))


def replay(arrays: tuple[Array, ...], places: Places) -> int:
    """Read the positions of a mini-batch from each array."""
    wanted = (places.columns, places.edges, places.nodes)
    pairs = zip(arrays, wanted, strict=True)
    return sum(sum_reads(array, indexes) for array, indexes in pairs)


def limit_rows(reads: list[RandomReads], places: list[Places], times: dict[str, Times]) -> list[Row]:
    """Return the number of reads of a mini-batch, and the cost of one read in each array."""
    counts = Times([place.count / 1000 for place in places])
    each = [1e9 * seconds / place.count for seconds, place in zip(times["random reads"].values, places, strict=True)]
    size = max(len(place.edges) for place in places)
    cases: dict[str, Case] = {}
    for name, read in zip(("row starts", "indices", "map"), reads, strict=True):
        megabytes = read.values.nbytes / 1e6
        what = f"a {read.values.itemsize}-byte read in {megabytes:.0f} MB ({name})"
        cases[what] = read_always(read, size)
    alone = in_turn(cases, len(places))
    return [
        Row("reads per mini-batch", "thousand", counts),
        Row("a read on average", "ns", Times(each)),
        *(Row(name, "ns", single.times(1e9 / size)) for name, single in alone.items()),
    ]


def rows(variant: Variant, times: dict[str, Times]) -> list[Row]:
    """Return the milliseconds of every case and their ratio to the random reads."""
    return compare(times, "random reads", "ms", 1e3, {"graphfeed": GOAL} if variant.has_goal else {})


def labor_rows(variant: Variant, times: dict[str, Times], edges: list[float]) -> list[Row]:
    """Return the cost of LABOR relative to its bound and to the uniform sampler.

    Args:
        variant: The graph and the way of sampling.
        times: The seconds of every case.
        edges: How many times as many edges the uniform sampler has chosen, per round.
    """

    def ratios(name: str) -> Times:
        return Times([mine / its for mine, its in zip(times[LABOR].values, times[name].values, strict=True)])

    by_edge = Times([more * ratio for more, ratio in zip(edges, ratios("graphfeed").values, strict=True)])
    bound = ratios(UNINDEXED)
    goal = Goal(bound.median, LABOR_GOAL) if variant.has_goal else None
    return [
        Row("LABOR, to reading its columns whole", "times", ratios(COLUMNS)),
        Row("LABOR, to its bound", "times", bound, bound.median, goal),
        Row("LABOR, an edge to one of the uniform sampler", "times", by_edge),
    ]
