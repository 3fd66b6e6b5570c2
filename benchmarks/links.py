"""Link prediction, all in-edges and shared neighbours, by the sampled edge, against the uniform sampler.

A mini-batch of edge seeds has a source, a destination and a random destination for each, so the
uniform sampler gets three times as many node seeds, with the same fan-outs. Both relabel.
"""

import numpy as np
import torch

import graphfeed as gf
from benchmarks.batches import per_edge
from benchmarks.graphs import load_edges
from benchmarks.limits import Array
from benchmarks.scale import Scale
from benchmarks.table import Row, compare

FANOUTS = (10, 10)
ENDS = 3
"""Nodes per seed: two endpoints, and one more for its negative."""
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
    times, counts = per_edge(stages, len(pairs))
    edges = [Row(f"edges: {name}", "thousand", own) for name, own in counts.items()]
    return [*compare(times, UNIFORM, "ns per edge", goals={LINKS: GOAL}), *edges]


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
