"""One epoch of training with graphfeed, GraphBolt and PyG, and the time of its parts.

All use the same net, seeds, fan-outs and mini-batch sizes. On one core, each library samples and fetches between the
training steps; with a worker, it does so concurrently on the second core. The peers are those of
`benchmarks/peers.py`. The step is that of the torch which a library runs on, so the loader's time is also apart.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from benchmarks.epoch_process import HIDDEN, LIBRARIES, PARTS
from benchmarks.graphs import load_edges, load_features
from benchmarks.peers import OURS, Task, ask, describe, find_peer, write_task
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
        tables: list[dict[str, list[list[float]]]] = [{} for _ in SETTINGS]
        for library, given in told.items():
            # One after the other: each has the graph in memory.
            with ExitStack() as stack:
                peer = find_peer("epoch_process", given, stack)
                if isinstance(peer, str):
                    yield f"{library} is left out: {peer}\n"
                    continue
                for workers, table in enumerate(tables):
                    table[peer[0]] = [ask(peer[1], str(workers)) for _ in range(scale.repeats)]
    what = f"{scale.products.name}, {size:,} seeds, fan-outs {list(FANOUTS)}, GraphSAGE of {HIDDEN}"
    for setting, table in reversed(list(zip(SETTINGS, tables, strict=True))):
        parts = [row for name, epochs in table.items() for row in rows_of(name, epochs)]
        yield render(f"epoch of training {setting}: {what}; ratio to the whole epoch", parts)
        for whole, left_out in (("whole epoch", None), ("loader's time, without the steps", "step")):
            yield render(f"epoch of training {setting}: {what}, {whole}; ratio to {OURS}", totals(table, left_out))


def rows_of(name: str, epochs: list[list[float]]) -> Iterator[Row]:
    """Yield a row for each part of an epoch."""
    whole = Times([sum(epoch) for epoch in epochs])
    for part, seconds in zip(PARTS, zip(*epochs, strict=True), strict=True):
        if any(seconds):
            yield Row(f"{name}: {part}", "s", Times(seconds), Times(seconds).over(whole))


def totals(table: dict[str, list[list[float]]], left_out: str | None) -> list[Row]:
    """Return a row for the parts of each library's epochs together, but for one; libraries don't take turns."""
    kept = [place for place, part in enumerate(PARTS) if part != left_out]
    times = {name: Times([sum(epoch[place] for place in kept) for epoch in epochs]) for name, epochs in table.items()}
    return [Row(name, "s", own, own.median / times[OURS].median) for name, own in times.items()]
