"""Calls with few ids, and stages that do nothing: the overhead of a call.

If GraphBolt is installed, it does the same in the same run. Otherwise calls are compared with functions of torch that
move the same number of values, a lower bound for this machine.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch

import graphfeed as gf
from benchmarks.graphs import load_edges
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, in_turn, one_core

OURS = "graphfeed"
CALLS = 50
"""Number of calls that are timed together."""
FANOUT = 10
HOPS = 2
STAGES = 10
SEEDS = 16
"""Number of seeds of a mini-batch."""
GOAL = 1.2
"""Maximum time of a call relative to GraphBolt; a mini-batch may take no longer than GraphBolt's."""

Calls = dict[str, Callable[[], object]]


def report(scale: Scale) -> Iterator[str]:
    """Yield one table per call."""
    shape = scale.arxiv
    indptr, indices = (torch.from_numpy(array) for array in load_edges(shape, scale.cache))
    calls = {OURS: library_calls(gf, indptr, indices)}
    try:
        other = f"GraphBolt {import_module('dgl').__version__}"
        calls[other] = library_calls(import_module("dgl.graphbolt"), indptr, indices)
    except (ImportError, OSError) as error:
        yield f"GraphBolt is left out: {str(error).splitlines()[0]}\n"
        other = "torch"
        calls[other] = torch_calls(indices)
    with one_core():
        for what in calls[OURS]:
            goal = None if other == "torch" else 1.0 if "mini-batch" in what else GOAL
            title = f"small_calls: {what}, {shape.name}; ratio to {other}"
            yield render(title, measure({name: own[what] for name, own in calls.items()}, other, goal, scale.repeats))


def measure(calls: Calls, other: str, goal: float | None, repeats: int) -> list[Row]:
    """Return the time of a call with each library."""

    def case(call: Callable[[], object]) -> Case:
        return lambda _: [call() for _ in range(CALLS)]

    times = in_turn({name: case(call) for name, call in calls.items()}, repeats)
    return compare(times, other, "us", 1e6 / CALLS, None if goal is None else {OURS: goal})


def draw_ids(num_nodes: int, count: int, seed: int = 0) -> torch.Tensor:
    """Draw nodes; every call returns the same ones."""
    return torch.randint(num_nodes, (count,), generator=torch.Generator().manual_seed(seed))


def library_calls(library: Any, indptr: torch.Tensor, indices: torch.Tensor) -> Calls:
    """Return the calls of a library with GraphBolt's names."""
    num_nodes, fanout = indptr.numel() - 1, torch.tensor([FANOUT])
    graph = library.fused_csc_sampling_graph(indptr, indices)
    feature = library.TorchBasedFeature(torch.zeros(num_nodes, 100))
    few, ids, others = draw_ids(20, 30), draw_ids(num_nodes, 1000), draw_ids(num_nodes, 1000, seed=1)
    unique, isin, merge = library.unique_and_compact, library.isin, library.unique_and_compact_csc_formats
    subgraph = library.SampledSubgraphImpl

    class Own(library.SubgraphSampler):  # type: ignore[misc]
        """A user-defined sampler."""

        def sample_subgraphs(self, seeds: Any, *_times: Any) -> Any:
            layers: list[Any] = []
            for _ in range(HOPS):
                hop = graph.sample_neighbors(seeds, fanout)
                rows, csc = merge(hop.sampled_csc, seeds)[:2]
                layers.insert(0, subgraph(csc, seeds, rows, hop.original_edge_ids))
                seeds = rows
            return seeds, layers

    # A separate source for each: GraphBolt's can be read by only one iterator at a time.
    stages, source = (
        library.ItemSampler(library.ItemSet(draw_ids(num_nodes, 100 * SEEDS * CALLS), names="seeds"), SEEDS)
        for _ in range(2)
    )
    for _ in range(STAGES):
        stages = stages.transform(lambda minibatch: minibatch)
    return {
        "sample_neighbors of 1 seed": lambda: graph.sample_neighbors(ids[:1], fanout),
        "sample_neighbors of 16 seeds": lambda: graph.sample_neighbors(ids[:16], fanout),
        "sample_neighbors of 1,000 seeds": lambda: graph.sample_neighbors(ids, fanout),
        "unique_and_compact of 30 ids": lambda: unique([few]),
        "isin of 1,000 ids": lambda: isin(ids, others),
        "TorchBasedFeature.read of 1 row": lambda: feature.read(ids[:1]),
        f"a mini-batch through {STAGES} functions": minibatches(library, stages),
        "a mini-batch of a user-defined sampler": minibatches(library, Own(source)),
    }


def minibatches(library: Any, pipe: Any) -> Callable[[], object]:
    """Return a function that produces the next mini-batch, epoch after epoch."""

    def run() -> Iterator[Any]:
        while True:
            yield from library.DataLoader(pipe, num_workers=0)

    found = run()
    return lambda: next(found)


def torch_calls(indices: torch.Tensor) -> Calls:
    """Return functions of torch that process the same values, or equally many."""
    num_nodes, rows = int(indices.max()) + 1, torch.zeros(int(indices.max()) + 1, 100)
    few, ids, others = draw_ids(20, 30), draw_ids(num_nodes, 1000), draw_ids(num_nodes, 1000, seed=1)

    def sample(count: int) -> torch.Tensor:
        return indices[torch.randint(indices.numel(), (count * FANOUT,))]

    def sample_hops() -> tuple[torch.Tensor, ...]:
        first = sample(SEEDS).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return sample(first[0].numel()).unique(return_inverse=True)  # type: ignore[no-any-return, no-untyped-call]

    items = torch.arange(SEEDS)
    return {
        "sample_neighbors of 1 seed": lambda: sample(1),
        "sample_neighbors of 16 seeds": lambda: sample(16),
        "sample_neighbors of 1,000 seeds": lambda: sample(1000),
        "unique_and_compact of 30 ids": lambda: few.unique(return_inverse=True),  # type: ignore[no-untyped-call]
        "isin of 1,000 ids": lambda: torch.isin(ids, others),
        "TorchBasedFeature.read of 1 row": lambda: rows.index_select(0, ids[:1]),
        f"a mini-batch through {STAGES} functions": items.clone,
        "a mini-batch of a user-defined sampler": sample_hops,
    }
