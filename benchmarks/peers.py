"""The same graph, seeds and fan-outs through graphfeed, GraphBolt and PyG's NeighborLoader, in turn on one core.

Graphs without types are compared with both, those with types only with GraphBolt.

Peers run in separate processes, each by the first of these interpreters that has it: this one, so that both use the
same PyTorch where that is possible, and those that the environment variable GRAPHFEED_PEERS names, separated by colons.
GraphBolt's wheel works only with the PyTorch that it was built for. On Linux with Python 3.11, create an interpreter
for it by `python -m venv peers` and `peers/bin/pip install torch==2.2.1 torchdata==0.7.1 dgl==2.1.0 "numpy<2"
"pandas<3" "scipy<1.14" "setuptools<71" pydantic pyyaml`.

NeighborLoader needs torch-sparse or pyg-lib, and both are measured. PyG's own index has wheels of pyg-lib for the
releases of PyTorch, to be installed beside `torch-geometric`. The package index has only the source of torch-sparse,
which compiles for minutes: `peers/bin/pip install wheel torch-geometric==2.5.3`, and then `peers/bin/pip install
--no-build-isolation torch-scatter torch-sparse==0.6.18`. Don't install both into one interpreter: PyG then uses pyg-lib
alone. A library that is not installed is left out, and the report says so.

Libraries sample different numbers of edges: NeighborLoader samples each node once, the others once per hop. So the
ratios compare the time per sampled edge.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks import real, typed
from benchmarks.batches import count_edges
from benchmarks.graphs import load_edges, load_features
from benchmarks.peer_process import PEERS
from benchmarks.sampling import FANOUTS
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import WARM_UP_ROUNDS, Times, one_core

OURS = "graphfeed"
INTERPRETER = "GRAPHFEED_PEERS"
Step = Callable[[], tuple[float, int]]
"""Produces a mini-batch, and returns the processor time in seconds and the number of edges."""


@dataclass(frozen=True)
class Task:
    """Work that all libraries do."""

    arrays: dict[str, Any]
    """The graph, as arguments of `fused_csc_sampling_graph`, which are the same in GraphBolt."""
    seeds: torch.Tensor
    batch_size: int
    fanouts: tuple[int, ...]
    features: dict[str | None, torch.Tensor] | None = None
    """Rows to fetch for the input nodes, by node type, or None to only sample."""
    kind: str | None = None
    """Node type of the seeds, or None without types."""

    def fetched(self) -> Any:
        """Return the names of the features to fetch, by node type if there are types."""
        assert self.features is not None
        return ["feat"] if self.kind is None else {kind: ["feat"] for kind in self.features}


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of sampling and one of sampling with features, of each graph."""
    count, missing = scale.batch_size * (scale.repeats + WARM_UP_ROUNDS), dict[str, str]()
    indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
    seeds = torch.from_numpy(np.random.default_rng(0).integers(scale.products.num_nodes, size=count))
    task = Task({"csc_indptr": indptr, "indices": indices}, seeds, scale.batch_size, FANOUTS)
    rows: dict[str | None, torch.Tensor] = {None: torch.from_numpy(load_features(scale.products, scale.cache))}
    yield from measure_both(scale.products.name, task, rows, scale, missing)
    del indptr, indices, task, rows
    graph = typed.make_graph(scale.mag_divisor)
    sizes: Any = graph.num_nodes
    rows = {kind: torch.rand(size, typed.FEATURES) for kind, size in sizes.items()}
    yield from measure_both("ogbn-mag's shape", typed_task(graph, "paper", scale, count), rows, scale, missing)
    del graph, rows
    yield from report_real(scale, count, missing)


def report_real(scale: Scale, count: int, missing: dict[str, str]) -> Iterator[str]:
    """Yield the same tables of real graphs."""
    data = gf.datasets.wordnet()
    rows: dict[str | None, torch.Tensor] = {"synset": data.feature.read("node", "synset", "feat")}
    yield from measure_both("WordNet", typed_task(data.graph, "synset", scale, count), rows, scale, missing)
    for name in real.WITH_FEATURES:
        arrays = real.load_arrays(name)
        if isinstance(arrays, str):
            yield arrays
            continue
        indptr, indices = real.csc(arrays)
        seeds = torch.from_numpy(np.random.default_rng(0).integers(len(indptr) - 1, size=count))
        task = Task({"csc_indptr": indptr, "indices": indices}, seeds, scale.batch_size, FANOUTS)
        yield from measure_both(name, task, {None: real.rows(arrays)}, scale, missing)


def typed_task(graph: Any, kind: str, scale: Scale, count: int) -> Task:
    """Return the work on a graph with types, for seeds of one of them."""
    names = "node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id"
    arrays = {name: getattr(graph, name) for name in ("csc_indptr", "indices", *names)}
    seeds = torch.from_numpy(np.random.default_rng(0).integers(graph.num_nodes[kind], size=count))
    return Task(arrays, seeds, scale.batch_size, typed.FANOUTS, kind=kind)


def measure_both(
    name: str, task: Task, rows: dict[str | None, torch.Tensor], scale: Scale, missing: dict[str, str]
) -> Iterator[str]:
    """Yield a table of sampling and one of sampling with features, each per edge and per mini-batch.

    Libraries in `missing`, where they are put with the reason, are not tried again.
    """
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        write_task(Path(folder), task, rows)
        for what, features in (("sample and fetch", rows), ("sample", None)):
            own = replace(task, features=features)
            with ExitStack() as stack, one_core():
                steps: dict[str, Step] = {OURS: step_of(own)}
                for library in [library for library in compared(task) if library not in missing]:
                    peer = start_peer(library, folder, own, stack)
                    if isinstance(peer, str):
                        missing[library] = peer
                        yield f"{library} is left out: {peer}\n"
                    else:
                        steps[peer[0]] = peer[1]
                by_edge, whole = measure(steps, scale.repeats)
            title = f"peers: {name}, fan-outs {list(task.fanouts)}, {what}"
            yield render(f"{title}, CPU time of an edge; ratio to {OURS}", by_edge)
            yield render(f"{title}, CPU time of a mini-batch", whole)


def compared(task: Task) -> list[str]:
    """Return the libraries to compare with: those that sample types by the same fan-outs, if there are types."""
    return [library for library in PEERS if task.kind is None or library == "GraphBolt"]


def write_task(folder: Path, task: Task, rows: dict[str | None, torch.Tensor]) -> None:
    """Write the arrays that peers read."""
    arrays = {name: value for name, value in task.arrays.items() if isinstance(value, torch.Tensor)}
    features = {f"feat-{kind or ''}": own for kind, own in rows.items()}
    for name, value in {**arrays, **features, "seeds": task.seeds}.items():
        np.save(folder / f"{name}.npy", value.numpy())


def start_peer(library: str, folder: str, task: Task, stack: ExitStack) -> tuple[str, Step] | str:
    """Return a peer's name and its step, or the libraries that no interpreter has."""
    peer = find_peer("peer_process", describe(library, folder, task), stack)
    return peer if isinstance(peer, str) else (peer[0], lambda: tuple(ask(peer[1], "")))


def describe(library: str, folder: str, task: Task) -> dict[str, Any]:
    """Return the input of a process, in a form that JSON supports."""
    types = {name: value for name, value in task.arrays.items() if not isinstance(value, torch.Tensor)}
    return {
        "library": library,
        "folder": folder,
        "arrays": [name for name in task.arrays if name not in types],
        "types": types,
        "batch_size": task.batch_size,
        "fanouts": task.fanouts,
        "fetched": [kind or "" for kind in task.features or ()],
        "kind": task.kind,
    }


def find_peer(program: str, given: dict[str, Any], stack: ExitStack) -> tuple[str, subprocess.Popen[str]] | str:
    """Return a library's name and a process of an interpreter that has it, or what no interpreter has."""
    answer: dict[str, str] = {}
    named = "" if given["library"].startswith(OURS) else os.environ.get(INTERPRETER, "")
    for interpreter in [sys.executable, *filter(None, named.split(os.pathsep))]:
        peer = stack.enter_context(run_peer(interpreter, program))
        answer = ask(peer, json.dumps(given))
        if "name" in answer:
            return answer["name"], peer
    return answer["missing"]


def run_peer(interpreter: str, program: str) -> subprocess.Popen[str]:
    """Start a process that ends when its input ends."""
    command = [interpreter, "-m", f"benchmarks.{program}"]
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)


def ask(peer: subprocess.Popen[str], line: str) -> Any:
    """Send a line and return the answer."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(f"{line}\n")
    peer.stdin.flush()
    answer = peer.stdout.readline()
    if not answer:
        raise RuntimeError(f"{peer.args!r} ended with {peer.wait()}; what it printed is above")
    return json.loads(answer)


def step_of(task: Task) -> Step:
    """Return a step that produces mini-batches with this package, in this process."""
    minibatches = with_graphfeed(task)

    def step() -> tuple[float, int]:
        start = time.process_time()
        edges = next(minibatches)
        return time.process_time() - start, edges

    return step


def measure(steps: dict[str, Step], repeats: int) -> tuple[list[Row], list[Row]]:
    """Return the times per edge and per mini-batch of each library. The libraries take turns."""
    made: dict[str, list[tuple[float, int]]] = {name: [] for name in steps}
    for _ in range(WARM_UP_ROUNDS + repeats):
        for name, step in steps.items():
            made[name].append(step())
    times = {name: Times([seconds for seconds, _ in own[WARM_UP_ROUNDS:]]) for name, own in made.items()}
    by_edge = {name: own.per([edges for _, edges in made[name][WARM_UP_ROUNDS:]]) for name, own in times.items()}
    return compare(by_edge, OURS, "ns", 1e9), [Row(name, "ms", own.times(1e3)) for name, own in times.items()]


def with_graphfeed(task: Task) -> Iterator[int]:
    """Produce mini-batches with this package."""
    items: Any = gf.ItemSet(task.seeds, names="seeds")
    items = items if task.kind is None else gf.HeteroItemSet({task.kind: items})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=task.batch_size)
    pipe = pipe.sample_neighbor(gf.fused_csc_sampling_graph(**task.arrays), list(task.fanouts))
    if task.features is not None:
        parts = {("node", kind, "feat"): gf.TorchBasedFeature(rows) for kind, rows in task.features.items()}
        pipe = pipe.fetch_feature(gf.BasicFeatureStore(parts), node_feature_keys=task.fetched())
    for minibatch in gf.DataLoader(pipe, num_workers=0, seed=0):
        yield count_edges(minibatch)
