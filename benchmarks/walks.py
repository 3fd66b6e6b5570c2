"""Random walks: time per step; and PageRank: time per mini-batch. DGL does the same if it is installed."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

import graphfeed as gf
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import Case, in_turn, one_core
from graphfeed.storage.graph import WalkRequest

NODES_PER_SEED, DEGREE = 1000, 16
"""Size of the graph: as many nodes for each seed of a mini-batch, and edges of each node."""
STARTS_PER_SEED, LENGTH = 20, 20
"""Number of walks for each seed, and of steps."""
LIMITS = {"uniform": 35.0, "weighted": 70.0, "node2vec": 110.0}
"""Goals in nanoseconds per step."""
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weighted": {"probs_name": "w"},
    "node2vec": {"p": 0.5, "q": 2.0},
}


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of steps and a table of mini-batches."""
    num_nodes = scale.batch_size * NODES_PER_SEED
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(num_nodes, (2, num_nodes * DEGREE), generator=generator)
    weights = torch.rand(ends.shape[1], generator=generator)
    graph = gf.from_coo(ends, num_nodes, edge_attributes={"w": weights})
    starts = torch.randint(num_nodes, (scale.batch_size * STARTS_PER_SEED,), generator=generator)
    with one_core():
        yield render("walks: steps", measure_steps(graph, ends, starts, scale.repeats))
        what = f"walks: mini-batches of {scale.batch_size} seeds; ratio to two hops"
        yield render(what, measure_batches(graph, starts[: scale.batch_size], scale.repeats))


def measure_steps(graph: gf.FusedCSCSamplingGraph, ends: torch.Tensor, starts: torch.Tensor, repeats: int) -> list[Row]:
    """Return the time of a step of each kind of walk."""

    def ours(options: dict[str, Any]) -> Case:
        request = WalkRequest(LENGTH, **options)
        return lambda number: graph.sample_walks(starts, request, key=number)

    cases = {name: ours(options) for name, options in OPTIONS.items()}
    try:
        dgl = import_module("dgl")
        other = dgl.graph((ends[1], ends[0]), num_nodes=graph.num_nodes)
        cases["DGL, uniform"] = lambda _: dgl.sampling.random_walk(other, starts, length=LENGTH)
        cases["DGL, node2vec"] = lambda _: dgl.sampling.node2vec_random_walk(other, starts, 0.5, 2.0, LENGTH)
    except ImportError:
        pass  # only this package is measured
    rows = []
    for name, times in in_turn(cases, repeats).items():
        own = times.times(1e9 / len(starts) / LENGTH)
        rows.append(Row(name, "ns", own, goal=Goal(own.median, LIMITS[name]) if name in LIMITS else None))
    return rows


def measure_batches(graph: gf.FusedCSCSamplingGraph, seeds: torch.Tensor, repeats: int) -> list[Row]:
    """Return the time of a mini-batch of each kind of sampler."""
    source = gf.IterableSource([gf.MiniBatch(seeds=seeds)])
    pipes = {
        "two hops, fan-outs 10": source.sample_neighbor(graph, [10, 10]),
        "PageRank, top 50": source.sample_by_ppr(graph, top=50, bound=1e-3),
        "visits, top 10": source.sample_by_visits(graph, [10]),
    }

    def case(pipe: gf.Datapipe) -> Case:
        return lambda _: next(iter(pipe))

    times = in_turn({name: case(pipe) for name, pipe in pipes.items()}, repeats)
    return compare(times, "two hops, fan-outs 10", "ms", 1e3, {"PageRank, top 50": 1.0})
