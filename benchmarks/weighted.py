"""Weighted sampling relative to uniform sampling, per sampled edge, in turn on the same seeds.

Weights are uniform in 0 to 1, or skewed: one over such a number, so that few edges of a column have most of its weight.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch

import graphfeed as gf
from benchmarks import table, typed
from benchmarks.batches import per_edge
from benchmarks.graphs import load_edges
from benchmarks.scale import Scale
from benchmarks.table import Row

FANOUTS = (5, 10, 15)
WEIGHTS = {"uniform": None, "weighted": "even", "weighted, skewed": "skewed"}
GOALS = {False: 3.0, True: 2.0}
"""The ratio of weighted to uniform, without replacement and with."""


def title(scale: Scale) -> str:
    """Return the first line of the table."""
    return f"sampling: by weight, by the sampled edge; {scale.products.name} and ogbn-mag's shape; ratio to uniform"


def measure(scale: Scale) -> list[Row]:
    """Time uniform and weighted sampling, with replacement and without, with types and without."""
    indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
    plain = gf.fused_csc_sampling_graph(indptr, indices, edge_attributes=make_weights(indices.numel()))
    ids = np.random.default_rng(1).integers(0, plain.total_num_nodes, scale.batch_size * scale.repeats)
    seeds = gf.ItemSampler(gf.ItemSet(torch.from_numpy(ids), names="seeds"), batch_size=scale.batch_size)
    rows = list(compare("without types", seeds, plain, FANOUTS))
    del indptr, indices, plain
    graph = typed.make_graph(scale.mag_divisor)
    for name, values in make_weights(graph.total_num_edges).items():
        graph.add_edge_attribute(name, values)
    papers = torch.from_numpy(ids % graph.num_nodes["paper"])  # type: ignore[index]
    items = gf.HeteroItemSet({"paper": gf.ItemSet(papers, names="seeds")})
    return [*rows, *compare("with types", gf.ItemSampler(items, batch_size=scale.batch_size), graph, typed.FANOUTS)]


def make_weights(count: int) -> dict[str, torch.Tensor]:
    """Return both kinds of weights of edges."""
    even = torch.rand(count, generator=torch.manual_seed(0))
    return {"even": even, "skewed": 1 / (even + 1e-6)}


def compare(name: str, seeds: gf.Datapipe, graph: gf.FusedCSCSamplingGraph, fanouts: tuple[int, ...]) -> Iterator[Row]:
    """Yield a row for each kind of weights, with replacement and without."""
    for replace in (False, True):
        stages = {
            weights: seeds.sample_neighbor(graph, fanouts, replace, prob_name=attribute)
            for weights, attribute in WEIGHTS.items()
        }
        times, _ = per_edge(stages, len(seeds))
        how = "with" if replace else "without"
        goals = {weights: GOALS[replace] for weights in stages if weights != "uniform"}
        for row in table.compare(times, "uniform", "ns per edge", goals=goals):
            yield dataclasses.replace(row, what=f"{name}, {how} replacement, {row.what}")
