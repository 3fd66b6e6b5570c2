"""One epoch of training with graphfeed, GraphBolt and PyG, and the time of its parts.

All use the same net, seeds, fan-outs and mini-batch sizes. On one core, each library samples and fetches between the
training steps; with a worker, it does so concurrently on the second core. The peers are those of
`benchmarks/peers.py`, with an older PyTorch. The parts show the loader's share of an epoch.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from benchmarks.epoch_process import HIDDEN, LIBRARIES, PARTS
from benchmarks.graphs import load_edges, load_features
from benchmarks.peers import Task, ask, describe, find_peer, write_task
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import Times

FANOUTS = (10, 10)
TRAINED = 196_615 / 2_449_029
"""Share of the training nodes of ogbn-products."""
SETTINGS = ("on one core", "with a worker on a second core")


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of the parts of an epoch with a worker, and one of an epoch on one core."""
    indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
    order = np.random.default_rng(0).permutation(scale.products.num_nodes)
    seeds = torch.from_numpy(order[: round(TRAINED * len(order))])
    rows: dict[str | None, torch.Tensor] = {None: torch.from_numpy(load_features(scale.products, scale.cache))}
    task = Task({"csc_indptr": indptr, "indices": indices}, seeds, scale.batch_size, FANOUTS, rows)
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        write_task(Path(folder), task, rows)
        told, size = {library: describe(library, folder, task) for library in LIBRARIES}, len(seeds)
        del indptr, indices, seeds, rows, task
        tables: list[list[Row]] = [[] for _ in SETTINGS]
        for library, given in told.items():
            # One after the other: each has the graph in memory.
            with ExitStack() as stack:
                peer = find_peer("epoch_process", given, stack)
                if isinstance(peer, str):
                    yield f"{library} is left out: {peer}\n"
                    continue
                for workers, table in enumerate(tables):
                    epochs = [ask(peer[1], str(workers)) for _ in range(scale.repeats)]
                    table.extend(rows_of(peer[0], epochs))
    what = f"{scale.products.name}, {size:,} seeds, fan-outs {list(FANOUTS)}, GraphSAGE of {HIDDEN}"
    for setting, table in reversed(list(zip(SETTINGS, tables, strict=True))):
        yield render(f"epoch of training {setting}: {what}; ratio to the whole epoch", table)


def rows_of(name: str, epochs: list[list[float]]) -> Iterator[Row]:
    """Yield a row for each part of an epoch."""
    whole = Times([sum(epoch) for epoch in epochs])
    for part, seconds in zip(PARTS, zip(*epochs, strict=True), strict=True):
        if any(seconds):
            yield Row(f"{name}: {part}", "s", Times(seconds), Times(seconds).over(whole))
