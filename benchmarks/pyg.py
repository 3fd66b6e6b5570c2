"""PyG's own loaders and those of `graphfeed.pyg`, on the same data, seeds and arguments, in turn in one process.

A round is an epoch of each, by processor time per mini-batch, so what an epoch costs at its start counts too. PyG's
loaders are measured if this interpreter has pyg-lib or torch-sparse; otherwise, the report says so. "Plain stages" are
the same sampling, of each node once, and fetching, without PyG's data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import graphfeed as gf
import graphfeed.pyg as ours
from benchmarks import real
from benchmarks.graphs import Shape, load_edges, load_features
from benchmarks.peer_process import pyg_release
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import Case, Times, in_turn, one_core
from graphfeed.storage.graph import edge_lists

TYPES = ("a:r0:b", "b:r1:a", "b:r2:c", "c:r3:a", "c:r4:d", "d:r5:a", "a:r6:a")
"""Edge types of the graphs with random ends; four lead to `a`, the type of the seeds."""
SMALL, MEDIUM = (5_000, 30_000), (300_000, 3_000_000)
"""Nodes per node type and edges per edge type."""
FLOATS, HOPS, PRODUCTS_HOPS = 32, [10, 10], [15, 10, 5]
OURS, STAGES = "graphfeed.pyg", "plain stages"
LEAST_SHARE = 0.87
"""Goal for the time of plain stages, relative to `graphfeed.pyg`."""


@dataclass(frozen=True)
class Work:
    """Data for both libraries, and the arguments of their loaders."""

    title: str
    data: Any
    """PyG's `Data` or `HeteroData`."""
    seeds: Tensor
    sizes: tuple[int, ...]
    """Numbers of seeds of a mini-batch."""
    kind: str | tuple[str, str, str] | None = None
    """Type of the seeds: a node type or an edge type."""
    hops: list[int] = field(default_factory=lambda: HOPS)
    options: dict[str, Any] = field(default_factory=dict)


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each graph and number of seeds."""
    try:
        name = pyg_release()
    except ImportError as error:
        name = ""
        yield f"PyG is left out: {error}\n"
    for make in (small, medium, products, wordnet, wikipedia):
        for work in make(scale):
            if isinstance(work, str):
                yield work
                continue
            for size in work.sizes:
                title = f"pyg: {work.title}, {size} seeds, neighbours {work.hops}; ratio to {OURS}"
                with one_core():
                    yield render(title, measure(loaders(work, min(size, len(work.seeds)), name), scale))


def typed(nodes: int, edges: int, **options: bool) -> Any:
    """Return four node types with random features, with times if `timed`, and edge types of random ends."""
    generator, data = torch.Generator().manual_seed(0), import_module("torch_geometric.data").HeteroData()
    for kind in "abcd":
        data[kind].x = torch.rand(nodes, FLOATS, generator=generator)
        if options.get("timed"):
            data[kind].time = torch.randint(1 << 40, (nodes,), generator=generator)
    for edge_type in TYPES:
        data[tuple(edge_type.split(":"))].edge_index = torch.randint(nodes, (2, edges), generator=generator)
    return data


def chosen(count: int, most: int) -> Tensor:
    """Return numbers below a count, at most so many."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(1))[:most]


def small(scale: Scale) -> Iterator[Work]:
    """Yield the work on a graph that fits the caches: nodes, nodes in temporal order, and links."""
    nodes, edges = (count // scale.mag_divisor for count in SMALL)
    data, sizes = typed(nodes, edges), (32, 256, 1024)
    yield Work("small typed graph", data, chosen(nodes, 4096), sizes, "a")
    in_time = typed(nodes, edges, timed=True)
    yield Work("small typed graph, temporal", in_time, chosen(nodes, 4096), sizes, "a", options={"time_attr": "time"})
    negatives = {"neg_sampling": {"mode": "binary", "amount": 1}}
    yield Work("small typed graph, links", data, chosen(edges, 4096), (256,), ("b", "r1", "a"), options=negatives)


def medium(scale: Scale) -> Iterator[Work]:
    """Yield the work on a graph that doesn't fit the caches."""
    nodes, edges = (count // scale.mag_divisor for count in MEDIUM)
    yield Work("medium typed graph", typed(nodes, edges), chosen(nodes, 8192), (256, 1024), "a")


def products(scale: Scale) -> Iterator[Work]:
    """Yield the work on a large graph without types, without features and with them."""
    shape: Shape = scale.products
    indptr, indices = (torch.from_numpy(array) for array in load_edges(shape, scale.cache))
    edges = torch.stack([indices, torch.arange(shape.num_nodes).repeat_interleave(indptr.diff())])
    data = import_module("torch_geometric.data").Data(num_nodes=shape.num_nodes, edge_index=edges)
    seeds, options = chosen(shape.num_nodes, 8 * scale.batch_size), {"is_sorted": True}
    yield Work(f"{shape.name}, sampling", data, seeds, (scale.batch_size,), hops=PRODUCTS_HOPS, options=options)
    data.x = torch.from_numpy(load_features(shape, scale.cache))
    title = f"{shape.name}, sampling and features"
    yield Work(title, data, seeds, (scale.batch_size,), hops=PRODUCTS_HOPS, options=options)


def wordnet(scale: Scale) -> Iterator[Work]:
    """Yield the work on WordNet, with 38 edge types."""
    dataset, data = gf.datasets.wordnet(), import_module("torch_geometric.data").HeteroData()
    data["synset"].x = dataset.feature.read("node", "synset", "feat")
    sizes: Any = dataset.graph.num_nodes
    data["word"].num_nodes = sizes["word"]
    for edge_type, edges in edge_lists(dataset.graph).items():
        data[tuple(str(edge_type).split(":"))].edge_index = torch.stack([edges.sources, edges.destinations])
    yield Work("WordNet", data, chosen(len(data["synset"].x), 4 * scale.batch_size), (scale.batch_size,), "synset")


def wikipedia(scale: Scale) -> Iterator[Work | str]:
    """Yield the work on edits of pages by users, in which each seed sees only earlier ones."""
    arrays = real.load_arrays(real.IN_TIME)
    if isinstance(arrays, str):
        yield arrays
        return
    data = import_module("torch_geometric.data").HeteroData()
    for kind in ("user", "page"):
        data[kind].num_nodes = int(arrays[f"num_nodes_{kind}"])
    for edge_type, ends in ((("user", "edits", "page"), ("src", "dst")), (("page", "by", "user"), ("dst", "src"))):
        data[edge_type].edge_index = torch.stack([arrays[end] for end in ends])
        data[edge_type].time = arrays["timestamp"]
    seeds = chosen(data["page"].num_nodes, 4 * scale.batch_size)
    options = {"time_attr": "time", "input_time": torch.full((len(seeds),), int(arrays["timestamp"].median()))}
    yield Work(f"{real.IN_TIME}, temporal", data, seeds, (scale.batch_size,), "page", options=options)


def loaders(work: Work, size: int, name: str) -> dict[str, Any]:
    """Return the loaders of both libraries, PyG's under a name if there is one, and of plain stages if they apply."""
    links = isinstance(work.kind, tuple)
    shared = {**work.options, "num_neighbors": work.hops, "batch_size": size}
    if links:
        shared["edge_label_index"] = work.kind, work.data[work.kind].edge_index[:, work.seeds]
    else:
        shared["input_nodes"] = work.seeds if work.kind is None else (work.kind, work.seeds)
    loader = "LinkNeighborLoader" if links else "NeighborLoader"
    make: Callable[..., Any] = getattr(ours, loader)
    made = {OURS: make(work.data, seed=0, **shared)}
    if name:
        made[name] = getattr(import_module("torch_geometric.loader"), loader)(work.data, **shared)
    if not links and "time_attr" not in work.options:
        made[STAGES] = gf.DataLoader(plain(work, size), num_workers=0, seed=0)
    return made


def plain(work: Work, size: int) -> gf.Datapipe:
    """Return the pipeline that samples the same neighbours and fetches the same rows."""
    graph, features = ours.from_pyg(work.data)
    items: Any = gf.ItemSet(work.seeds, names="seeds")
    kind: Any = work.kind
    hops: Any = work.hops[::-1]
    keys: Any = ["x"] if "x" in work.data else []
    if kind is not None:
        # PyG's number of neighbours is per edge type, and that of a stage for all types together.
        items, hops = gf.HeteroItemSet({kind: items}), dict.fromkeys(graph.edge_types, hops)
        keys = {kind: ["x"] for kind in work.data.node_types if "x" in work.data[kind]}
    pipe = gf.ItemSampler(items, batch_size=size).sample_neighbor(graph, hops, only_new=True)
    return pipe.fetch_feature(features, node_feature_keys=keys) if keys else pipe


def measure(made: dict[str, Any], scale: Scale) -> list[Row]:
    """Time an epoch of each loader per round, by processor time per mini-batch."""
    counts: dict[str, int] = {}

    def epoch(name: str) -> Case:
        def run(_: int) -> None:
            counts[name] = sum(1 for _ in made[name])

        return run

    times = in_turn({name: epoch(name) for name in made}, scale.repeats)
    each: dict[str, Times] = {name: own.times(1 / counts[name]) for name, own in times.items()}
    rows = compare(each, OURS, "ms", 1e3)
    goals = {row.what: Goal(row.ratio, LEAST_SHARE, at_least=True) for row in rows if row.ratio and row.what == STAGES}
    return [replace(row, goal=goals.get(row.what)) for row in rows]
