"""The whole loader: sampling and features, inline and in workers, and what it costs by itself."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

import numpy as np
import torch

import graphfeed as gf
from benchmarks.graphs import load_edges, load_features
from benchmarks.sampling import FANOUTS
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, Times, in_turn, one_core

SPEED_UP = 1.8
INLINE_MICROSECONDS = 100
THREADS_MICROSECONDS = 200
EMPTY_BATCHES = 25
"""An empty pipeline has so many times the batches of a full one."""
EPOCHS = 9
"""Rounds at most: each is an epoch, not a batch."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of throughput, and one of the loader's own cost."""
    title = f"loader: {scale.products.name}, sample + fetch; ratio to inline on one core"
    yield render(title, throughput(scale))
    yield render("loader: overhead around an empty pipeline, a batch", overhead(scale))


def throughput(scale: Scale) -> list[Row]:
    """Time epochs of the loader on one core, and with threads or processes."""
    pipe = make_pipe(scale)
    with ExitStack() as stack:
        inline = stack.enter_context(gf.DataLoader(pipe, num_workers=0, seed=0))
        one = stack.enter_context(gf.DataLoader(pipe, num_workers=1, seed=0))
        two = stack.enter_context(gf.DataLoader(pipe, num_workers=2, seed=0))
        cases: dict[str, Case] = {
            "inline": on_one_core(inline),
            "1 thread": epoch(one),
            "2 threads": epoch(two),
        }
        if scale.processes:
            pool = ProcessPoolExecutor(scale.processes, get_context("spawn"))
            executor = stack.enter_context(pool)
            processes = stack.enter_context(gf.DataLoader(pipe, executor=executor, seed=0))
            cases[f"{scale.processes} processes"] = epoch(processes)
        times = in_turn(cases, min(scale.repeats, EPOCHS), time.perf_counter)
        batches = len(inline)
    ratios = {name: times["inline"].over(single) for name, single in times.items()}
    goals = {"2 threads": Goal(ratios["2 threads"], SPEED_UP, at_least=True)}
    return [
        Row(
            name,
            "batches/s",
            Times([batches / seconds for seconds in single.values]),
            ratios[name],
            goals.get(name),
        )
        for name, single in times.items()
    ]


def overhead(scale: Scale) -> list[Row]:
    """Time epochs of a pipeline that has nothing to do."""
    batches = EMPTY_BATCHES * scale.epoch_batches
    items = gf.ItemSet(torch.arange(batches * scale.batch_size), names="seeds")
    pipe = gf.ItemSampler(items, batch_size=scale.batch_size, shuffle=True).transform(unchanged)
    with ExitStack() as stack:
        inline = stack.enter_context(gf.DataLoader(pipe, num_workers=0, seed=0))
        two = stack.enter_context(gf.DataLoader(pipe, num_workers=2, seed=0))
        cases: dict[str, Case] = {"inline": on_one_core(inline), "2 threads": epoch(two)}
        times = in_turn(cases, min(scale.repeats, EPOCHS), time.perf_counter)
    limits = {"inline": INLINE_MICROSECONDS, "2 threads": THREADS_MICROSECONDS}
    each = {name: single.times(1e6 / batches) for name, single in times.items()}
    return [Row(name, "us", single, goal=Goal(single.median, limits[name])) for name, single in each.items()]


def make_pipe(scale: Scale) -> gf.Datapipe:
    """Return the pipeline of a training loop, with an epoch of the scale's length."""
    indptr, indices = load_edges(scale.products, scale.cache)
    graph = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    feature = gf.TorchBasedFeature(torch.from_numpy(load_features(scale.products, scale.cache)))
    store = gf.BasicFeatureStore({("node", None, "feat"): feature})
    size = scale.epoch_batches * scale.batch_size
    seeds = np.random.default_rng(0).choice(len(indptr) - 1, size, replace=False)
    items = gf.ItemSet((torch.from_numpy(seeds),), names=("seeds",))
    head = gf.ItemSampler(items, batch_size=scale.batch_size, shuffle=True)
    sampled = gf.NeighborSampler(head, graph, fanouts=FANOUTS)
    return gf.FeatureFetcher(sampled, store, node_feature_keys=["feat"])


def epoch(loader: gf.DataLoader) -> Callable[[int], None]:
    """Return a case that takes all mini-batches and drops each."""

    def run(_: int) -> None:
        for _batch in loader:
            pass

    return run


def on_one_core(loader: gf.DataLoader) -> Callable[[int], None]:
    """Return the same, on one core."""

    def run(number: int) -> None:
        with one_core():
            epoch(loader)(number)

    return run


def unchanged(batch: gf.MiniBatch) -> gf.MiniBatch:
    """Do nothing."""
    return batch
