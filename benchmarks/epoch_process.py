"""Program that trains GraphSAGE with mini-batches of one library, in a process whose interpreter has the library.

Like `benchmarks/peer_process.py`, it reads its input, and then a line for each epoch: the number of workers. It
answers with the seconds of the parts of the epoch, from the start of the workers to the last step. Loading in workers
counts only while the training waits for it.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peer_process import Answer, pyg_data, serve, torch_release

CLASSES, HIDDEN = 47, 64
PARTS = ("sampling", "features", "step", "waiting")
WARM_UP_BATCHES = 3

Hop = tuple[Tensor, Tensor]
"""Offsets of the rows of each column, and these rows; the first rows are the columns."""
Loading = Callable[[Tensor, int], Callable[[], Iterator[tuple[Tensor, Callable[[], list[Hop]], Tensor]]]]
"""Makes a loader of seeds with a number of workers, which then loads features, hops and labels of the mini-batches."""


class Fetching:
    """Adds up the seconds in which the main thread fetches features."""

    seconds = start = 0.0

    def begin(self, value: Any = None) -> Any:
        """Return the value."""
        self.start = time.perf_counter()
        return value

    def end(self, value: Any) -> Any:
        """Return the value."""
        if threading.current_thread() is threading.main_thread():
            self.seconds += time.perf_counter() - self.start
        return value


class SAGE(nn.Module):
    """Net of two layers, each a linear map of a node and of the mean of its neighbours."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * features, HIDDEN), nn.Linear(2 * HIDDEN, CLASSES)])

    def forward(self, h: Tensor, hops: list[Hop]) -> Tensor:
        """Return the scores of the seeds' classes."""
        for number, (indptr, indices) in enumerate(hops):
            h = h.relu() if number else h
            means = functional.embedding_bag(indices, h, indptr, mode="mean", include_last_offset=True)
            h = self.layers[number](torch.cat([h[: len(indptr) - 1], means], 1))
        return h


def by_stages(task: dict[str, Any], fetching: Fetching, module: str, name: str) -> tuple[str, Loading]:
    """Load with a pipeline, which is the same code for graphfeed and GraphBolt."""
    library: Any = import_module(module)

    class Timed(library.TorchBasedFeature):  # type: ignore[misc]
        def read(self, ids: Tensor | None = None) -> Any:
            return fetching.end(super().read(fetching.begin(ids)))

    graph = library.fused_csc_sampling_graph(**task["graph"])
    store = library.BasicFeatureStore({("node", None, "feat"): Timed(task["features"][None])})

    def load(seeds: Tensor, workers: int) -> Any:
        items = library.ItemSet((seeds, seeds % CLASSES), names=("seed_nodes", "labels"))
        pipe = library.ItemSampler(items, batch_size=task["batch_size"], shuffle=True)
        pipe = pipe.sample_neighbor(graph, task["fanouts"]).fetch_feature(store, node_feature_keys=["feat"])
        loader = library.DataLoader(pipe, num_workers=workers)
        return lambda: ((batch.node_features["feat"], partial(hops_of, batch), batch.labels) for batch in loader)

    def hops_of(minibatch: Any) -> list[Hop]:
        cscs = [hop.sampled_csc for hop in minibatch.sampled_subgraphs]
        return [(csc.indptr, csc.indices) for csc in cscs]

    return name.format(import_module(module.partition(".")[0]).__version__, torch_release()), load


def by_loader(task: dict[str, Any], fetching: Fetching, module: str, back_end: str = "") -> tuple[str, Loading]:
    """Load with the NeighborLoader of PyG or of graphfeed, whose edges are sorted by destination."""
    loader_class, data_class = import_module(module).NeighborLoader, import_module("torch_geometric.data").Data
    if module == "graphfeed.pyg":
        indptr, indices = task["graph"]["csc_indptr"], task["graph"]["indices"]
        columns = torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
        edges = import_module("torch_geometric").EdgeIndex(torch.stack([indices, columns]), sort_order="col")
        name, data = module, data_class(x=task["features"][None], edge_index=edges)
    else:
        name, data = pyg_data(task, back_end)
    options = {"batch_size": task["batch_size"], "shuffle": True, "is_sorted": True, "transform": fetching.end}
    options |= {"num_neighbors": list(reversed(task["fanouts"])), "transform_sampler_output": fetching.begin}

    def load(seeds: Tensor, workers: int) -> Any:
        loader = loader_class(data, input_nodes=seeds, num_workers=workers, **options)
        return lambda: (
            (batch.x, partial(hops_of, batch), batch.n_id[: batch.batch_size] % CLASSES) for batch in loader
        )

    def hops_of(batch: Any) -> list[Hop]:
        rows, columns = batch.edge_index
        starts = functional.pad(torch.bincount(columns, minlength=batch.num_nodes).cumsum(0), (1, 0))
        # Columns that the seeds read, and the seeds: a layer needs no others.
        inner = max(batch.batch_size, int(rows[: starts[batch.batch_size]].max()) + 1)
        return [(starts[: count + 1], rows[: starts[count]]) for count in (inner, batch.batch_size)]

    return name, load


LIBRARIES: dict[str, Callable[[dict[str, Any], Fetching], tuple[str, Loading]]] = {
    "graphfeed": partial(by_stages, module="graphfeed", name="graphfeed"),
    "GraphBolt": partial(by_stages, module="dgl.graphbolt", name="GraphBolt {}, {}"),
    "graphfeed.pyg": partial(by_loader, module="graphfeed.pyg"),
    **{
        f"PyG with {name}": partial(by_loader, module="torch_geometric.loader", back_end=name)
        for name in ("pyg-lib", "torch-sparse")
    },
}


def trainer(library: str, task: dict[str, Any]) -> tuple[str, Answer]:
    """Return the name of a library, and a function that trains an epoch with it."""
    fetching, cores = Fetching(), os.sched_getaffinity(0)
    name, load = LIBRARIES[library](task, fetching)

    def answer(line: str) -> list[float]:
        workers, warm = int(line), task["seeds"][: WARM_UP_BATCHES * task["batch_size"]]
        os.sched_setaffinity(0, cores if workers else {max(cores)})
        for seeds in (warm, task["seeds"]):
            gc.collect()  # GraphBolt's loader, which ends its workers within seconds
            model = SAGE(task["features"][None].shape[1])
            optimizer = torch.optim.Adam(model.parameters())
            loading = load(seeds, workers)
            fetching.seconds = stepping = 0.0
            start = end = time.perf_counter()
            for rows, hops, labels in loading():
                begin = time.perf_counter()
                optimizer.zero_grad()
                functional.cross_entropy(model(rows, hops()), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                end = time.perf_counter()
                stepping += end - begin
        rest = end - start - stepping - fetching.seconds
        return [0.0 if workers else rest, fetching.seconds, stepping, rest if workers else 0.0]

    return name, answer


if __name__ == "__main__":
    serve(trainer)
