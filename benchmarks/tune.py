"""What `num_workers="auto"` reaches of the best of a grid of settings, in four pipelines with four bottlenecks."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

import graphfeed as gf
from benchmarks.cache import store_rows
from benchmarks.graphs import load_edges, load_features
from benchmarks.loader import epoch
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, Times, in_turn

SHARE = 0.85
"""What "auto" is to reach of the rate of any setting."""
ROUNDS = 9
MOST_EPOCHS = 100
"""How many epochs may go by until it has settled."""
EPOCH_BATCHES = 2
"""How many times the mini-batches of another benchmark an epoch has."""
FANOUTS = [10, 10]
FEW, FEW_FANOUTS = 2, [5, 5]
"""The seeds of a mini-batch whose rows are read from the disk, and how far they reach: some sixty reads."""
LOCKED_SECONDS = 0.004
AUTO: Literal["auto"] = "auto"
GRID = [
    (0, "thread", 2),
    *((count, who, 2) for who in ("thread", "process") for count in (1, 2)),
    (4, "thread", 2),
    (2, "thread", 4),
]
"""Numbers of workers, threads or processes, and prefetch factors."""


class Locked(gf.Transform):
    """Holds the interpreter's lock for a while, as Python code does."""

    seconds: float

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return minibatch


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each pipeline."""
    scale.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        path = Path(folder) / "feat.npy"
        store_rows(path, scale.cached_rows)
        for name, pipe in make_pipes(scale, path).items():
            yield measure(name, pipe, scale, partial(forget, path) if "disk" in name else int)


def make_pipes(scale: Scale, path: Path) -> dict[str, gf.Datapipe]:
    """Return the pipelines; the last one reads rows of a file."""
    indptr, indices = load_edges(scale.arxiv, scale.cache)
    count, size = len(indptr) - 1, EPOCH_BATCHES * scale.epoch_batches
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    feature = gf.TorchBasedFeature(torch.from_numpy(load_features(scale.arxiv, scale.cache)))
    store = gf.BasicFeatureStore({("node", None, "feat"): feature})
    on_disk = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(path, num_threads=1)})
    generator = np.random.default_rng(0)
    seeds = gf.ItemSet(torch.from_numpy(generator.integers(count, size=size * scale.batch_size)), names="seeds")
    few = gf.ItemSet(torch.from_numpy(generator.integers(count, size=size * FEW)), names="seeds")
    pipe: gf.Datapipe = gf.ItemSampler(seeds, batch_size=scale.batch_size, shuffle=True)
    sampled = pipe.sample_neighbor(graph, FANOUTS)
    small: gf.Datapipe = gf.ItemSampler(few, batch_size=FEW, shuffle=True)
    small = small.sample_neighbor(graph, FEW_FANOUTS)
    return {
        "sampling": sampled,
        "sampling and fetching": sampled.fetch_feature(store, node_feature_keys=["feat"]),
        "a stage that holds the interpreter's lock": Locked(sampled, LOCKED_SECONDS),
        "features on disk": small.fetch_feature(on_disk, node_feature_keys=["feat"]),
    }


def measure(name: str, pipe: gf.Datapipe, scale: Scale, prepare: Callable[[], object]) -> str:
    """Let a loader find its setting, and compare it with a grid; return a table."""
    with ExitStack() as stack:
        auto = stack.enter_context(gf.DataLoader(pipe, num_workers=AUTO, seed=0))
        epochs, begin = 0, time.perf_counter()
        while epochs < MOST_EPOCHS and "measur" in said(auto):
            after(prepare, auto)(0)
            epochs += 1
        title = f"tune: {name}; after {epochs} epochs, {time.perf_counter() - begin:.0f} s, {said(auto)}"
        rows = []
        for count, worker, each in GRID if scale.processes else GRID[:3]:
            option = f"{count} of worker={worker!r}, prefetch_factor={each}" if count else "num_workers=0"
            loader = gf.DataLoader(pipe, num_workers=count, worker=worker, prefetch_factor=each, seed=0)
            # In pairs, since other programs come and go.
            cases: dict[str, Case] = {AUTO: after(prepare, auto), option: after(prepare, loader)}
            with loader:
                times = in_turn(cases, min(scale.repeats, ROUNDS), time.perf_counter)
            share = times[option].over(times[AUTO])
            rate = Times([len(auto) / seconds for seconds in times[option].values])
            rows.append(Row(option, "batches/s", rate, share, Goal(share, SHARE, at_least=True)))
    return render(f"{title}; ratio of its rate to that of each setting", rows)


def after(prepare: Callable[[], object], loader: gf.DataLoader) -> Case:
    """Return a case that prepares an epoch and takes its mini-batches."""

    def run(number: int) -> None:
        prepare()
        epoch(loader)(number)

    return run


def said(loader: gf.DataLoader) -> str:
    """Return the line in which a loader says what it has chosen."""
    return next(line for line in loader.explain().splitlines() if line.startswith("workers: "))


def forget(path: Path) -> None:
    """Let the system read a file from the disk the next time."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
