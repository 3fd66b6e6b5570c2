"""What PyG's data cost beyond sampling and fetching, on the arxiv- and products-shaped graphs.

The same seeds and fan-outs, each node sampled once. One case samples and fetches with plain stages; the other one is
the pipeline of `graphfeed.pyg.NeighborLoader`, whose mini-batches are PyG's `Data`.
"""

from collections.abc import Iterator

import torch

import graphfeed as gf
from benchmarks.graphs import Shape, load_edges, load_features
from benchmarks.links import one_batch
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, in_turn
from graphfeed.pyg.data_features import DataFeatures
from graphfeed.pyg.fill_data import fetch_and_fill
from graphfeed.pyg.neighborhoods import Neighborhoods

NUM_NEIGHBORS = (15, 10, 5)
PLAIN = "sampling each node once, and fetching"
DATA = "NeighborLoader's pipeline: the same as PyG's data"
ALL_NODES = "sampling all nodes in each hop, and fetching"
GOAL = 1.15


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each graph."""
    for shape in (scale.arxiv, scale.products):
        title = (
            f"pyg: {shape.name}, mini-batches of {scale.batch_size}, neighbours {NUM_NEIGHBORS}; ratio to plain stages"
        )
        yield render(title, measure(shape, scale))


def measure(shape: Shape, scale: Scale) -> list[Row]:
    """Time each pipeline on one graph, by the processor time of a mini-batch."""
    indptr, indices = load_edges(shape, scale.cache)
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    rows = torch.from_numpy(load_features(shape, scale.cache))
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(rows)})
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(shape.num_nodes, (scale.batch_size * scale.repeats,), generator=generator)
    items = gf.ItemSet((seeds, torch.arange(len(seeds))), names=("seeds", "input_id"))
    source = gf.ItemSampler(items, scale.batch_size)
    features = DataFeatures(store, {"": ["x"]}, {"": []})
    fanouts = list(reversed(NUM_NEIGHBORS))
    pipes: dict[str, gf.Datapipe] = {
        PLAIN: source.sample_neighbor(graph, fanouts, only_new=True).fetch_feature(store, ["x"]),
        DATA: fetch_and_fill(Neighborhoods(graph, list(NUM_NEIGHBORS)).append_to(source), features),
        ALL_NODES: source.sample_neighbor(graph, fanouts).fetch_feature(store, ["x"]),
    }
    cases: dict[str, Case] = {name: one_batch(pipe) for name, pipe in pipes.items()}
    times = in_turn(cases, scale.repeats)
    ratios = {name: own.over(times[PLAIN]) for name, own in times.items()}
    goals = {DATA: Goal(ratios[DATA], GOAL)}
    return [Row(name, "ms", own.times(1e3), ratios[name], goals.get(name)) for name, own in times.items()]
