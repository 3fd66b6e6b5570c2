"""Cost of PyG's data beyond sampling and fetching: arxiv- and products-shaped graphs, and WordNet for its types.

The same seeds and fan-outs, each node sampled once. One case samples and fetches with plain stages; the other one is
the pipeline of `graphfeed.pyg.NeighborLoader`, whose mini-batches are PyG's `Data`.
"""

from collections.abc import Iterator

import torch

import graphfeed as gf
from benchmarks.batches import one_batch
from benchmarks.graphs import Shape, load_edges, load_features
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, in_turn
from graphfeed.pyg.data.data_features import DataFeatures
from graphfeed.pyg.samplers.neighborhoods import Neighborhoods
from graphfeed.pyg.stages.fill_data import fetch_and_fill

NUM_NEIGHBORS = (15, 10, 5)
PLAIN = "sampling each node once, and fetching"
DATA = "NeighborLoader's pipeline: the same as PyG's data"
ALL_NODES = "sampling all nodes in each hop, and fetching"
GOAL = 1.15


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each graph."""
    for shape in (scale.arxiv, scale.products):
        yield render(title_of(shape.name, scale), measure(*without_types(shape, scale), scale))
    yield render(title_of("WordNet, 38 edge types", scale), measure(*with_types(scale), scale))


def title_of(name: str, scale: Scale) -> str:
    """Return the title of a table."""
    return f"pyg: {name}, mini-batches of {scale.batch_size}, neighbours {NUM_NEIGHBORS}; ratio to plain stages"


def without_types(shape: Shape, scale: Scale) -> tuple[gf.SamplingGraph, DataFeatures, gf.Datapipe]:
    """Return a graph, its features and the seeds."""
    indptr, indices = load_edges(shape, scale.cache)
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    rows = torch.from_numpy(load_features(shape, scale.cache))
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(rows)})
    items = draw_seeds(shape.num_nodes, scale)
    return graph, DataFeatures(store, {None: ["x"]}, {None: []}), gf.ItemSampler(items, scale.batch_size)


def with_types(scale: Scale) -> tuple[gf.SamplingGraph, DataFeatures, gf.Datapipe]:
    """Return WordNet, its features and synsets as seeds."""
    dataset = gf.datasets.wordnet()
    graph = dataset.graph
    features = DataFeatures(
        dataset.feature, {"synset": ["feat"], "word": []}, {kind: list[str]() for kind in graph.edge_types}
    )
    assert isinstance(graph.num_nodes, dict)
    items = gf.HeteroItemSet({"synset": draw_seeds(graph.num_nodes["synset"], scale)})
    return graph, features, gf.ItemSampler(items, scale.batch_size)


def draw_seeds(num_nodes: int, scale: Scale) -> gf.ItemSet:
    """Return seeds with their positions, in the form of loaders for PyG."""
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(num_nodes, (scale.batch_size * scale.repeats,), generator=generator)
    return gf.ItemSet((seeds, torch.arange(len(seeds))), names=("seeds", "input_id"))


def measure(graph: gf.SamplingGraph, features: DataFeatures, source: gf.Datapipe, scale: Scale) -> list[Row]:
    """Time each pipeline on one graph, by processor time per mini-batch."""
    sampled = Neighborhoods(graph, list(NUM_NEIGHBORS))
    names = features.node_keys
    pipes: dict[str, gf.Datapipe] = {
        PLAIN: source.sample_neighbor(graph, sampled.fanouts, only_new=True).fetch_feature(features.store, names),
        DATA: fetch_and_fill(sampled.append_to(source), features),
        ALL_NODES: source.sample_neighbor(graph, sampled.fanouts).fetch_feature(features.store, names),
    }
    cases: dict[str, Case] = {name: one_batch(pipe) for name, pipe in pipes.items()}
    times = in_turn(cases, scale.repeats)
    return compare(times, PLAIN, "ms", 1e3, {DATA: GOAL})
