"""Link prediction on a graph with types, part by part: the graph of `typed`, with authors who write papers as seeds.

The seeds and their reverse edges are excluded. A mini-batch takes 29 ms (1,024 edges, one negative each): sampling 49 %
without compaction, fetch 38 %, exclusion 11 %, negatives 2 %, compaction 2 %. So no two parts are combined in one pass:
sampling that marks the excluded edges itself would still look up the endpoints of each edge. Even if that took no time
at all, a mini-batch would be 1.12 times as fast. Compaction in the sampler's map, and negatives with it, could gain
1.04 times.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks.scale import Scale
from benchmarks.table import Row, compare
from benchmarks.timing import Case, in_turn
from benchmarks.typed import FANOUTS, NODES, make_graph, with_features
from graphfeed.datapipes.sources.seeds import given_seeds, node_seeds

SEED_TYPE = "author:writes:paper"
REVERSE = {SEED_TYPE: "paper:rev_writes:author"}
GOAL = 0.2
PARTS = ("negative sampling", "sampling and compaction", "exclusion", "fetch")
COMPACTION = "   of this, compaction"


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    size = f"1/{scale.mag_divisor} of " if scale.mag_divisor > 1 else ""
    return f"link prediction: {size}ogbn-mag's shape, fan-outs {FANOUTS}; ratio to sampling"


def measure(scale: Scale) -> list[Row]:
    """Time each stage on the mini-batches of the stage before it."""
    graph = make_graph(scale.mag_divisor)
    pipe = draw_seeds(graph, scale)
    (source,) = gf.find(pipe, gf.ItemSampler)
    stages: list[Any] = [
        gf.UniformNegativeSampler(pipe, graph, 1),
        gf.NeighborSampler(pipe, graph, FANOUTS),
        gf.SeedEdgesExcluder(pipe, True, REVERSE),
        with_features(pipe, graph),
    ]
    batches = [list(source)]
    for stage in stages:
        batches.append([stage(batch) for batch in batches[-1]])
    cases = {name: apply(stage, own) for name, stage, own in zip(PARTS, stages, batches, strict=False)}
    cases[COMPACTION] = apply(lambda batch: node_seeds(given_seeds(batch)), batches[1])
    times = in_turn(cases, len(batches[0]))
    in_order = {name: times[name] for name in (*PARTS[:2], COMPACTION, *PARTS[2:])}
    return compare(in_order, PARTS[1], "ms", 1000, {"exclusion": GOAL})


def apply(stage: Callable[[gf.MiniBatch], object], batches: list[gf.MiniBatch]) -> Case:
    """Return a case that applies a stage to the mini-batch of a round."""
    return lambda number: stage(batches[number])


def draw_seeds(graph: gf.FusedCSCSamplingGraph, scale: Scale) -> gf.Datapipe:
    """Return mini-batches of edges of the seed type."""
    own = (graph.type_per_edge == graph.edge_type_to_id[SEED_TYPE]).nonzero().flatten().numpy()
    edges = np.random.default_rng(2).choice(own, scale.batch_size * scale.repeats)
    ends = np.searchsorted(graph.csc_indptr.numpy(), edges, side="right") - 1
    first = dict(zip(NODES, graph.first_ids(), strict=False))
    source, _, destination = SEED_TYPE.split(":")
    pairs = np.stack([graph.indices.numpy()[edges] - first[source], ends - first[destination]], axis=1)
    items = gf.HeteroItemSet({SEED_TYPE: gf.ItemSet(torch.from_numpy(pairs), names="seeds")})
    return gf.ItemSampler(items, batch_size=scale.batch_size)
