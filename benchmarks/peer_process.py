"""Program that produces mini-batches with GraphBolt or PyG, whose interpreter need not have graphfeed.

It reads lines: its input as JSON, and then an empty line for each mini-batch. It answers each with a line of JSON: the
name of the library with the releases of its back end and of torch, or of what is missing; then the processor time in
seconds and the edges.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

EdgeCounts = Iterator[int]
Answer = Callable[[str], Any]


def with_graphbolt(task: dict[str, Any]) -> tuple[str, EdgeCounts]:
    """Return GraphBolt's version, and a function that produces mini-batches with it."""
    gb = import_module("dgl.graphbolt")

    def run() -> EdgeCounts:
        kind, features = task["kind"], task["features"]
        items = gb.ItemSet(task["seeds"], names="seed_nodes")
        items = items if kind is None else gb.ItemSetDict({kind: items})
        pipe = gb.ItemSampler(items, batch_size=task["batch_size"])
        pipe = pipe.sample_neighbor(gb.fused_csc_sampling_graph(**task["graph"]), task["fanouts"])
        if features:
            store = {("node", own, "feat"): gb.TorchBasedFeature(rows) for own, rows in features.items()}
            keys = ["feat"] if kind is None else {own: ["feat"] for own in features}
            pipe = pipe.fetch_feature(gb.BasicFeatureStore(store), node_feature_keys=keys)
        for minibatch in gb.DataLoader(pipe, num_workers=0):
            cscs = [layer.sampled_csc for layer in minibatch.sampled_subgraphs]
            parts = [part for csc in cscs for part in (csc.values() if isinstance(csc, dict) else [csc])]
            yield sum(part.indices.numel() for part in parts)

    return f"GraphBolt {import_module('dgl').__version__}, {torch_release()}", run()


def with_pyg(task: dict[str, Any], back_end: str) -> tuple[str, EdgeCounts]:
    """Return PyG's versions with a back end, and a function that produces mini-batches with its NeighborLoader."""
    name, data = pyg_data(task, back_end)
    options = {"batch_size": task["batch_size"], "is_sorted": True}
    loader = import_module("torch_geometric.loader").NeighborLoader(
        data, list(reversed(task["fanouts"])), task["seeds"], **options
    )
    return name, (minibatch.edge_index.shape[1] for minibatch in loader)


def pyg_data(task: dict[str, Any], back_end: str) -> tuple[str, Any]:
    """Return PyG's releases with a back end, and the graph with its features, whose edges are sorted by destination."""
    name = pyg_release(back_end)
    indptr, indices = task["graph"]["csc_indptr"], task["graph"]["indices"]
    nodes = indptr.numel() - 1
    edges = torch.stack([indices, torch.arange(nodes).repeat_interleave(indptr.diff())])
    features = task["features"].get(None)
    return name, import_module("torch_geometric.data").Data(num_nodes=nodes, x=features, edge_index=edges)


def pyg_release(back_end: str | None = None) -> str:
    """Return the releases of PyG, of the back end of its NeighborLoader, and of torch.

    Raises:
        ImportError: It doesn't use this back end, or none at all.
    """
    pyg, kernels = import_module("torch_geometric"), import_module("torch_geometric.typing")
    # PyG takes pyg-lib where both are installed.
    used = "pyg-lib" if kernels.WITH_PYG_LIB else "torch-sparse" if kernels.WITH_TORCH_SPARSE else None
    if used is None or used != (back_end or used):
        raise ImportError(
            f"its NeighborLoader needs {back_end or 'pyg-lib or torch-sparse'}; {used or 'none'} is found"
        )
    release = import_module(used.replace("-", "_")).__version__
    return f"PyG {pyg.__version__} ({used} {release}), {torch_release()}"


def torch_release() -> str:
    """Return the release of torch that this process uses."""
    return f"torch {torch.__version__.partition('+')[0]}"


PEERS: dict[str, Callable[[dict[str, Any]], tuple[str, EdgeCounts]]] = {
    "GraphBolt": with_graphbolt,
    "PyG with pyg-lib": partial(with_pyg, back_end="pyg-lib"),
    "PyG with torch-sparse": partial(with_pyg, back_end="torch-sparse"),
}


def read_task(line: str) -> tuple[str, dict[str, Any]]:
    """Return the library and its mini-batches; arrays are in files of a folder."""
    task: dict[str, Any] = json.loads(line)
    folder = Path(task["folder"])

    def load(name: str) -> torch.Tensor:
        return torch.from_numpy(np.load(folder / f"{name}.npy"))

    task["seeds"] = load("seeds")
    task["graph"] = {name: load(name) for name in task["arrays"]} | task["types"]
    task["features"] = {kind or None: load(f"feat-{kind}") for kind in task["fetched"]}
    return task["library"], task


def main() -> None:
    """Answer with the processor time in seconds and the edges of each mini-batch."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def make(library: str, task: dict[str, Any]) -> tuple[str, Answer]:
        name, minibatches = PEERS[library](task)

        def answer(_: str) -> tuple[float, int]:
            start = time.process_time()
            edges = next(minibatches)
            return time.process_time() - start, edges

        return name, answer

    serve(make)


def serve(make: Callable[[str, dict[str, Any]], tuple[str, Answer]]) -> None:
    """Answer until there is no further line, with the library that the first line names."""
    torch.set_num_threads(1)
    try:
        name, answer = make(*read_task(sys.stdin.readline()))
    except (ImportError, OSError) as error:
        print(json.dumps({"missing": str(error).splitlines()[0]}), flush=True)
        return
    print(json.dumps({"name": name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
