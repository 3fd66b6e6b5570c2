"""The same graph, seeds and fan-outs through graphfeed, GraphBolt and PyG's NeighborLoader, on one core in one run.

The graph without types is compared with both, the one with types (of ogbn-mag's shape) with GraphBolt alone.

A library that is not installed is left out, and the report says so. GraphBolt needs a PyTorch that its wheel was built
for; NeighborLoader needs torch-sparse or pyg-lib. Libraries differ in how many edges they sample: NeighborLoader looks
up each node once, the others once per hop. So the ratios compare the time per sampled edge.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks import typed
from benchmarks.batches import count_edges
from benchmarks.graphs import load_edges, load_features
from benchmarks.sampling import FANOUTS
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import WARM_UP_ROUNDS, Case, in_turn, one_core

OURS = "graphfeed"


@dataclass(frozen=True)
class Task:
    """What all libraries do."""

    arrays: dict[str, Any]
    """The graph, as arguments of `fused_csc_sampling_graph`, which means the same in GraphBolt."""
    seeds: torch.Tensor
    batch_size: int
    fanouts: tuple[int, ...]
    features: dict[str | None, torch.Tensor] | None = None
    """Rows to fetch for the input nodes, by node type; None to sample only."""
    kind: str | None = None
    """The node type of the seeds; None without types."""

    def fetched(self) -> Any:
        """Return the names of the features to fetch, by node type if there are types."""
        assert self.features is not None
        return ["feat"] if self.kind is None else {kind: ["feat"] for kind in self.features}


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
    count = scale.batch_size * (scale.repeats + WARM_UP_ROUNDS)
    indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
    seeds = torch.from_numpy(np.random.default_rng(0).integers(scale.products.num_nodes, size=count))
    task = Task({"csc_indptr": indptr, "indices": indices}, seeds, scale.batch_size, FANOUTS)
    rows: dict[str | None, torch.Tensor] = {None: torch.from_numpy(load_features(scale.products, scale.cache))}
    yield from measure_both(scale.products.name, task, rows, libraries, scale.repeats)
    del indptr, indices, task, rows
    libraries = {name: run for name, run in libraries.items() if not name.startswith("PyG")}
    task, rows = typed_task(scale, count)
    yield from measure_both("ogbn-mag's shape", task, rows, libraries, scale.repeats)


def typed_task(scale: Scale, count: int) -> tuple[Task, dict[str | None, torch.Tensor]]:
    """Return what is sampled of the graph with types, and its features."""
    graph = typed.make_graph(scale.mag_divisor)
    names = "node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id"
    arrays = {name: getattr(graph, name) for name in ("csc_indptr", "indices", *names)}
    sizes: Any = graph.num_nodes
    seeds = torch.from_numpy(np.random.default_rng(0).integers(sizes["paper"], size=count))
    rows: dict[str | None, torch.Tensor] = {kind: torch.rand(size, typed.FEATURES) for kind, size in sizes.items()}
    return Task(arrays, seeds, scale.batch_size, typed.FANOUTS, kind="paper"), rows


def measure_both(
    name: str,
    task: Task,
    rows: dict[str | None, torch.Tensor],
    libraries: dict[str, Callable[[Task], EdgeCounts]],
    repeats: int,
) -> Iterator[str]:
    """Yield a table of sampling and one of sampling with features."""
    for what, features in (("sample", None), ("sample and fetch", rows)):
        title = f"peers: {name}, fan-outs {list(task.fanouts)}, {what}; ratio to {OURS}"
        yield render(title, measure(replace(task, features=features), libraries, repeats))


def measure(task: Task, libraries: dict[str, Callable[[Task], EdgeCounts]], repeats: int) -> list[Row]:
    """Return the time of a mini-batch and of an edge of each library, which take turns."""
    edges: dict[str, list[int]] = {name: [] for name in libraries}

    def case(name: str, minibatches: EdgeCounts) -> Case:
        return lambda _: edges[name].append(next(minibatches))

    with one_core():
        times = in_turn({name: case(name, run(task)) for name, run in libraries.items()}, repeats)
    by_edge = {f"{name}, an edge": own.per(edges[name][WARM_UP_ROUNDS:]) for name, own in times.items()}
    whole = [Row(f"{name}, a mini-batch", "ms", own.times(1e3)) for name, own in times.items()]
    return [*whole, *compare(by_edge, f"{OURS}, an edge", "ns", 1e9)]


def with_graphfeed(task: Task) -> EdgeCounts:
    """Make mini-batches with this package."""
    items: Any = gf.ItemSet(task.seeds, names="seeds")
    items = items if task.kind is None else gf.HeteroItemSet({task.kind: items})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=task.batch_size)
    pipe = pipe.sample_neighbor(gf.fused_csc_sampling_graph(**task.arrays), list(task.fanouts))
    if task.features is not None:
        parts = {("node", kind, "feat"): gf.TorchBasedFeature(rows) for kind, rows in task.features.items()}
        pipe = pipe.fetch_feature(gf.BasicFeatureStore(parts), node_feature_keys=task.fetched())
    for minibatch in gf.DataLoader(pipe, num_workers=0, seed=0):
        yield count_edges(minibatch)


def find_graphbolt() -> tuple[str, Callable[[Task], EdgeCounts]]:
    """Return GraphBolt's version, and what makes mini-batches with it."""
    gb = import_module("dgl.graphbolt")

    def run(task: Task) -> EdgeCounts:
        items = gb.ItemSet(task.seeds, names="seed_nodes")
        items = items if task.kind is None else gb.ItemSetDict({task.kind: items})
        pipe = gb.ItemSampler(items, batch_size=task.batch_size)
        pipe = pipe.sample_neighbor(gb.fused_csc_sampling_graph(**task.arrays), list(task.fanouts))
        if task.features is not None:
            parts = {("node", kind, "feat"): gb.TorchBasedFeature(rows) for kind, rows in task.features.items()}
            pipe = pipe.fetch_feature(gb.BasicFeatureStore(parts), node_feature_keys=task.fetched())
        for minibatch in gb.DataLoader(pipe, num_workers=0):
            yield count_edges(minibatch)

    return import_module("dgl").__version__, run


def find_pyg() -> tuple[str, Callable[[Task], EdgeCounts]]:
    """Return PyG's version, and what makes mini-batches with its NeighborLoader."""
    pyg, kernels = import_module("torch_geometric"), import_module("torch_geometric.typing")
    data_class = import_module("torch_geometric.data").Data
    loader_class = import_module("torch_geometric.loader").NeighborLoader
    if not (kernels.WITH_PYG_LIB or kernels.WITH_TORCH_SPARSE):
        raise ImportError("its NeighborLoader needs torch-sparse or pyg-lib, and neither is installed")

    def run(task: Task) -> EdgeCounts:
        indptr, indices = task.arrays["csc_indptr"], task.arrays["indices"]
        nodes = indptr.numel() - 1
        data = data_class(num_nodes=nodes, x=None if task.features is None else task.features[None])
        # Destinations are the rows of a transposed adjacency, so CSC is taken as it is.
        data.adj_t = kernels.SparseTensor(
            rowptr=indptr, col=indices, sparse_sizes=(nodes, nodes), is_sorted=True, trust_data=True
        )
        fanouts = list(reversed(task.fanouts))
        for minibatch in loader_class(data, fanouts, task.seeds, batch_size=task.batch_size):
            yield minibatch.adj_t.nnz()

    return pyg.__version__, run
