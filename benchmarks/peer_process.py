"""Program that produces mini-batches with GraphBolt or PyG, whose interpreter need not have graphfeed.

It reads lines: its input as JSON, and then an empty line for each mini-batch. It answers each with a line of JSON: the
name and the release of the library, or of what is missing; then the processor time in seconds and the edges.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
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

    return f"GraphBolt {import_module('dgl').__version__}", run()


def with_pyg(task: dict[str, Any]) -> tuple[str, EdgeCounts]:
    """Return the versions of PyG and its sampler, and a function that produces mini-batches with its NeighborLoader."""
    if task["kind"] is not None:
        raise ImportError("the graph with types is compared with GraphBolt alone")
    name, data = pyg_data(task)
    loader_class = import_module("torch_geometric.loader").NeighborLoader

    def run() -> EdgeCounts:
        fanouts = list(reversed(task["fanouts"]))
        for minibatch in loader_class(data, fanouts, task["seeds"], batch_size=task["batch_size"]):
            yield minibatch.adj_t.nnz()

    return name, run()


def pyg_data(task: dict[str, Any]) -> tuple[str, Any]:
    """Return the versions of PyG and its sampler, and the graph with its features."""
    pyg, kernels = import_module("torch_geometric"), import_module("torch_geometric.typing")
    if not (kernels.WITH_PYG_LIB or kernels.WITH_TORCH_SPARSE):
        raise ImportError("PyG's NeighborLoader needs torch-sparse or pyg-lib, and neither is installed")
    indptr, indices = task["graph"]["csc_indptr"], task["graph"]["indices"]
    nodes = indptr.numel() - 1
    data = import_module("torch_geometric.data").Data(num_nodes=nodes, x=task["features"].get(None))
    # Destinations are the rows of a transposed adjacency matrix, so CSC needs no conversion.
    data.adj_t = kernels.SparseTensor(
        rowptr=indptr, col=indices, sparse_sizes=(nodes, nodes), is_sorted=True, trust_data=True
    )
    return f"PyG {pyg.__version__} ({'pyg-lib' if kernels.WITH_PYG_LIB else 'torch-sparse'})", data


PEERS: dict[str, Callable[[dict[str, Any]], tuple[str, EdgeCounts]]] = {"GraphBolt": with_graphbolt, "PyG": with_pyg}


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
