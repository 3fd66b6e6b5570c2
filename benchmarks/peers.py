"""The same graph, seeds and fan-outs through graphfeed, GraphBolt and PyG's NeighborLoader, on one core in one run.

A library that is not installed is left out, and the report says so. GraphBolt needs a PyTorch that its wheel was built
for; NeighborLoader needs torch-sparse or pyg-lib. Libraries differ in how many edges they sample: NeighborLoader looks
up each node once, the others once per hop. So the ratios compare the time per sampled edge.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch

import graphfeed as gf
from benchmarks.graphs import load_edges, load_features
from benchmarks.sampling import FANOUTS
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import WARM_UP_ROUNDS, Case, Times, in_turn, one_core

OURS = "graphfeed"
KEY = ("node", None, "feat")


@dataclass(frozen=True)
class Task:
    """What all libraries do."""

    indptr: torch.Tensor
    indices: torch.Tensor
    seeds: torch.Tensor
    batch_size: int
    features: torch.Tensor | None
    """Rows to fetch for the input nodes; None to sample only."""


EdgeCounts = Iterator[int]
"""Makes a mini-batch at each step, and gives the number of its edges."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of sampling and one of sampling with features."""
    libraries: dict[str, Callable[[Task], EdgeCounts]] = {OURS: with_graphfeed}
    for name, find in (("GraphBolt", find_graphbolt), ("PyG", find_pyg)):
        try:
            version, run = find()
        except (ImportError, OSError) as error:
            yield f"{name} is left out: {str(error).splitlines()[0]}\n"
        else:
            libraries[f"{name} {version}"] = run
    indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
    count = scale.batch_size * (scale.repeats + WARM_UP_ROUNDS)
    seeds = torch.from_numpy(np.random.default_rng(0).integers(scale.products.num_nodes, size=count))
    rows = torch.from_numpy(load_features(scale.products, scale.cache))
    for title, features in (("sample", None), ("sample and fetch", rows)):
        task = Task(indptr, indices, seeds, scale.batch_size, features)
        title = f"peers: {scale.products.name}, fan-outs {list(FANOUTS)}, {title}; ratio to {OURS}"
        yield render(title, measure(task, libraries, scale.repeats))


def measure(task: Task, libraries: dict[str, Callable[[Task], EdgeCounts]], repeats: int) -> list[Row]:
    """Return the time of a mini-batch and of an edge of each library, which take turns."""
    edges: dict[str, list[int]] = {name: [] for name in libraries}

    def case(name: str, minibatches: EdgeCounts) -> Case:
        return lambda _: edges[name].append(next(minibatches))

    with one_core():
        times = in_turn({name: case(name, run(task)) for name, run in libraries.items()}, repeats)
    by_edge = {name: per_edge(single, edges[name][WARM_UP_ROUNDS:]) for name, single in times.items()}
    return [
        *(Row(f"{name}, a mini-batch", "ms", single.times(1e3)) for name, single in times.items()),
        *(
            Row(f"{name}, an edge", "ns", single.times(1e9), single.over(by_edge[OURS]))
            for name, single in by_edge.items()
        ),
    ]


def per_edge(times: Times, edges: list[int]) -> Times:
    """Divide the times of the rounds by what was sampled in them."""
    return Times([seconds / count for seconds, count in zip(times.values, edges, strict=True)])


def with_graphfeed(task: Task) -> EdgeCounts:
    """Make mini-batches with this package."""
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(task.seeds, names="seeds"), batch_size=task.batch_size)
    pipe = pipe.sample_neighbor(gf.fused_csc_sampling_graph(task.indptr, task.indices), list(FANOUTS))
    if task.features is not None:
        store = gf.BasicFeatureStore({KEY: gf.TorchBasedFeature(task.features)})
        pipe = pipe.fetch_feature(store, node_feature_keys=[KEY[2]])
    for minibatch in gf.DataLoader(pipe, num_workers=0, seed=0):
        yield sum(hop.sampled_csc.indices.numel() for hop in minibatch.sampled_subgraphs)


def find_graphbolt() -> tuple[str, Callable[[Task], EdgeCounts]]:
    """Return GraphBolt's version, and what makes mini-batches with it."""
    gb = import_module("dgl.graphbolt")

    def run(task: Task) -> EdgeCounts:
        pipe = gb.ItemSampler(gb.ItemSet(task.seeds, names="seed_nodes"), batch_size=task.batch_size)
        pipe = pipe.sample_neighbor(gb.fused_csc_sampling_graph(task.indptr, task.indices), list(FANOUTS))
        if task.features is not None:
            store = gb.BasicFeatureStore({KEY: gb.TorchBasedFeature(task.features)})
            pipe = pipe.fetch_feature(store, node_feature_keys=[KEY[2]])
        for minibatch in gb.DataLoader(pipe, num_workers=0):
            yield sum(hop.sampled_csc.indices.numel() for hop in minibatch.sampled_subgraphs)

    return import_module("dgl").__version__, run


def find_pyg() -> tuple[str, Callable[[Task], EdgeCounts]]:
    """Return PyG's version, and what makes mini-batches with its NeighborLoader."""
    pyg, kernels = import_module("torch_geometric"), import_module("torch_geometric.typing")
    data_class = import_module("torch_geometric.data").Data
    loader_class = import_module("torch_geometric.loader").NeighborLoader
    if not (kernels.WITH_PYG_LIB or kernels.WITH_TORCH_SPARSE):
        raise ImportError("its NeighborLoader needs torch-sparse or pyg-lib, and neither is installed")

    def run(task: Task) -> EdgeCounts:
        nodes = task.indptr.numel() - 1
        data = data_class(num_nodes=nodes, x=task.features)
        # Destinations are the rows of a transposed adjacency, so CSC is taken as it is.
        data.adj_t = kernels.SparseTensor(
            rowptr=task.indptr, col=task.indices, sparse_sizes=(nodes, nodes), is_sorted=True, trust_data=True
        )
        fanouts = list(reversed(FANOUTS))
        for minibatch in loader_class(data, fanouts, task.seeds, batch_size=task.batch_size):
            yield minibatch.adj_t.nnz()

    return pyg.__version__, run
