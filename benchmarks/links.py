"""Link prediction, all in-edges and shared neighbours, by the sampled edge, against the uniform sampler.

A mini-batch of edge seeds has a source, a destination and a random destination for each, so the
uniform sampler gets three times as many node seeds, with the same fan-outs. Both relabel.
"""

import numpy as np
import torch

import graphfeed as gf
from benchmarks.graphs import load_edges
from benchmarks.limits import Array
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row
from benchmarks.timing import Case, Times, in_turn

FANOUTS = (10, 10)
ENDS = 3
"""Nodes a seed: two ends, and one more of its negative."""
GOAL = 2.0
UNIFORM = "uniform sampler, node seeds"
LINKS = "link prediction: negatives, sampling, exclusion"


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    return f"sampling: {scale.products.name}, by the sampled edge, fan-outs {FANOUTS}; ratio to the uniform sampler"


def measure(scale: Scale) -> list[Row]:
    """Time each kind of sampling on the products-shaped graph."""
    indptr, indices = load_edges(scale.products, scale.cache)
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    nodes, pairs = draw_seeds(indptr, indices, scale)
    uniform = nodes.sample_neighbor(graph, FANOUTS)
    links = pairs.sample_uniform_negative(graph, 1).sample_neighbor(graph, FANOUTS).exclude_seed_edges()
    stages: dict[str, gf.Datapipe] = {
        UNIFORM: uniform,
        LINKS: links,
        "the same, reverse edges excluded too": links.changed(include_reverse_edges=True),
        "neighbours shared by the columns (LABOR)": nodes.sample_layer_neighbor(graph, FANOUTS),
        "all in-edges of the node seeds": nodes.sample_in_subgraph(graph),
    }
    rounds = len(pairs)
    cases: dict[str, Case] = {name: one_batch(pipe) for name, pipe in stages.items()}
    counts = {name: [count_edges(case(number)) for number in range(rounds)] for name, case in cases.items()}
    times = {
        name: Times([1e9 * seconds / edges for seconds, edges in zip(own.values, counts[name], strict=True)])
        for name, own in in_turn(cases, rounds).items()
    }
    return rows(times, counts)


def draw_seeds(indptr: Array, indices: Array, scale: Scale) -> tuple[gf.Datapipe, gf.Datapipe]:
    """Return item samplers of as many batches as rounds: of nodes, and of edges of the graph."""
    rng = np.random.default_rng(0)
    nodes = rng.integers(0, len(indptr) - 1, ENDS * scale.batch_size * scale.repeats)
    edges = rng.integers(0, len(indices), scale.batch_size * scale.repeats)
    ends = np.searchsorted(indptr, edges, side="right") - 1
    pairs = torch.from_numpy(np.stack([indices[edges], ends], axis=1))
    return (
        gf.ItemSampler(gf.ItemSet(torch.from_numpy(nodes), names="seeds"), batch_size=ENDS * scale.batch_size),
        gf.ItemSampler(gf.ItemSet(pairs, names="seeds"), batch_size=scale.batch_size),
    )


def one_batch(pipe: gf.Datapipe) -> Case:
    """Return a case that makes the mini-batch of a round, items excepted: those are taken before."""
    stages = [stage for stage in gf.traverse(pipe) if isinstance(stage, gf.Transform)]
    (source,) = gf.find(pipe, gf.ItemSampler)
    batches = list(source)

    def run(number: int) -> gf.MiniBatch:
        batch: gf.MiniBatch = batches[number]
        for stage in stages:
            batch = stage(batch)
        return batch

    return run


def count_edges(batch: object) -> int:
    """Return how many edges a mini-batch has in all layers."""
    assert isinstance(batch, gf.MiniBatch)
    return sum(len(ids) for layer in range(batch.num_layers()) if (ids := batch.edge_ids(layer)) is not None)


def rows(times: dict[str, Times], counts: dict[str, list[int]]) -> list[Row]:
    """Return the nanoseconds an edge of every case, and the edges of a mini-batch."""
    ratios = {name: single.over(times[UNIFORM]) for name, single in times.items()}
    goals = {LINKS: Goal(ratios[LINKS], GOAL)}
    found = [Row(name, "ns an edge", single, ratios[name], goals.get(name)) for name, single in times.items()]
    edges = [Row(f"edges: {name}", "thousand", Times([count / 1000 for count in own])) for name, own in counts.items()]
    return [*found, *edges]
