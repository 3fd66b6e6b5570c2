"""Benchmark cases that produce one mini-batch per round, and their time per sampled edge."""

from collections.abc import Mapping
from typing import Any

import graphfeed as gf
from benchmarks.timing import Case, Times, in_turn


def one_batch(pipe: gf.Datapipe) -> Case:
    """Return a case that produces the mini-batch of a round, from items that were read before."""
    stages = [stage for stage in gf.traverse(pipe) if isinstance(stage, gf.Transform)]
    (source,) = gf.find(pipe, gf.ItemSampler)
    batches = list(source)

    def run(number: int) -> gf.MiniBatch:
        batch: gf.MiniBatch = batches[number]
        for stage in stages:
            batch = stage(batch)
        return batch

    return run


def count_edges(minibatch: Any) -> int:
    """Return the number of edges of a mini-batch of graphfeed or GraphBolt, in all layers and of all types."""
    cscs = [layer.sampled_csc for layer in minibatch.sampled_subgraphs]
    return sum(part.indices.numel() for csc in cscs for part in (csc.values() if isinstance(csc, dict) else [csc]))


def per_edge(pipes: Mapping[str, gf.Datapipe], rounds: int) -> tuple[dict[str, Times], dict[str, Times]]:
    """Return the nanoseconds of each pipeline per sampled edge, and the thousands of edges in its mini-batches."""
    cases: dict[str, Case] = {name: one_batch(pipe) for name, pipe in pipes.items()}
    counts = {name: [count_edges(case(number)) for number in range(rounds)] for name, case in cases.items()}
    times = {name: own.per(counts[name]).times(1e9) for name, own in in_turn(cases, rounds).items()}
    return times, {name: Times(own).times(1e-3) for name, own in counts.items()}
