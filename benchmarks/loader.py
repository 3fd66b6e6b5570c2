"""The whole loader: sampling and features, inline and in workers, and its overhead.

`python -m benchmarks scale` compares any numbers of threads with bare threads, which call the same stages without a
loader. The issue form "Rates on many cores" asks for its output.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count, takewhile
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import graphfeed as gf
from benchmarks.cores import two_cores
from benchmarks.graphs import load_edges, load_features
from benchmarks.record import commit, describe_machine
from benchmarks.sampling import FANOUTS
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import Case, Times, in_turn, one_core

SHARE_OF_BARE_THREADS = 0.95
"""Goal for threads of the loader, relative to as many threads without a loader."""
BATCHES_PER_THREAD = 20
"""Minimum number of mini-batches of an epoch, times the number of threads."""
NODES = Path("/sys/devices/system/node")
INLINE_MICROSECONDS = 100
THREADS_MICROSECONDS = 200
EMPTY_BATCHES = 25
"""Factor by which an empty pipeline has more batches than a full one."""
EPOCHS = 9
"""Maximum number of rounds: each is an epoch, not a batch."""


def report(scale: Scale) -> Iterator[str]:
    """Yield tables of throughput, in threads and in processes, and one of the loader's own cost."""
    pipe = make_pipe(scale)
    title = f"loader: {scale.products.name}, sample + fetch; ratio to inline on one core"
    yield render(title, in_threads(pipe, scale, (1, 2)))
    yield render("loader: two cores of this machine against one", two_cores(scale))
    if scale.processes:
        yield render(f"{title}, both with the graph in shared memory", in_processes(pipe, scale))
    yield render("loader: overhead around an empty pipeline, a batch; ratio to no loader", overhead(scale))


def report_threads(scale: Scale) -> Iterator[str]:
    """Yield the machine's processor and memory nodes, and a table of throughput by number of threads."""
    counts = scale.threads or tuple(takewhile(len(os.sched_getaffinity(0)).__ge__, (1 << power for power in count())))
    most = scale.products.num_nodes // scale.batch_size
    scale = replace(scale, epoch_batches=min(max(scale.epoch_batches, BATCHES_PER_THREAD * max(counts)), most))
    nodes = len(list(NODES.glob("node[0-9]*"))) or 1
    release = commit() or gf.__version__
    yield f"{describe_machine()['processor']}, memory nodes (NUMA): {nodes}; graphfeed at {release}\n"
    title = f"scale: {scale.products.name}, sample + fetch, {scale.epoch_batches} mini-batches; ratio to one core"
    yield render(title, in_threads(make_pipe(scale), scale, counts))


def in_threads(pipe: gf.Datapipe, scale: Scale, counts: Sequence[int]) -> list[Row]:
    """Time epochs of the loader on one core and with numbers of threads, and of as many bare threads."""
    with ExitStack() as stack:
        cases: dict[str, Case] = {
            "inline": on_one_core(stack.enter_context(gf.DataLoader(pipe, num_workers=0, seed=0)))
        }
        for threads in counts:
            loader = stack.enter_context(gf.DataLoader(pipe, num_workers=threads, seed=0))
            pool = stack.enter_context(ThreadPoolExecutor(threads))
            cases[f"threads: {threads}"] = epoch(loader)
            cases[f"threads: {threads}, without a loader"] = bare(pipe, pool, threads)
        times = in_turn(cases, min(scale.repeats, EPOCHS), time.perf_counter)
    rows = throughput(times, scale)
    for threads in counts:
        own, limit = (times[f"threads: {threads}{ending}"].values for ending in ("", ", without a loader"))
        share = Times([bound / taken for taken, bound in zip(own, limit, strict=True)])
        goal = Goal(share.median, SHARE_OF_BARE_THREADS, at_least=True)
        rows.append(Row(f"threads: {threads}, share of the rate without a loader", "times", share, goal=goal))
    return rows


def in_processes(pipe: gf.Datapipe, scale: Scale) -> list[Row]:
    """Time epochs on one core, with threads and with processes. Runs last: it moves the graph to shared memory."""
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(scale.processes, get_context("spawn")))
        inline = stack.enter_context(gf.DataLoader(pipe, num_workers=0, seed=0))
        foreign = stack.enter_context(gf.DataLoader(pipe, executor=pool, seed=0))
        cases: dict[str, Case] = {"inline": on_one_core(inline)}
        executors = {}
        for count in range(1, scale.processes + 1):
            threads = stack.enter_context(gf.DataLoader(pipe, num_workers=count, seed=0))
            executor = executors[count] = stack.enter_context(gf.ProcessExecutor(count))
            processes = stack.enter_context(gf.DataLoader(pipe, num_workers=count, executor=executor, seed=0))
            cases[f"{count} threads"] = epoch(threads)
            cases[f"{count} processes"] = epoch(processes)
        cases[f"{scale.processes} processes of ProcessPoolExecutor"] = epoch(foreign)
        rows = throughput(in_turn(cases, min(scale.repeats, EPOCHS), time.perf_counter), scale)
        for pid in executors[scale.processes].pids():
            rows.append(Row("memory of one worker", "MB", Times([private_bytes(pid) / 1e6])))
        return rows


def private_bytes(pid: int) -> int:
    """Return the private memory of this process, without pages of files and shared memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))


def throughput(times: Mapping[str, Times], scale: Scale) -> list[Row]:
    """Return the mini-batches per second of each case, and its ratio to inline."""
    rows = []
    for name, single in times.items():
        rate = Times([scale.epoch_batches / seconds for seconds in single.values])
        rows.append(Row(name, "batches/s", rate, times["inline"].over(single)))
    return rows


def overhead(scale: Scale) -> list[Row]:
    """Time epochs of an empty pipeline."""
    batches = EMPTY_BATCHES * scale.epoch_batches
    items = gf.ItemSet(torch.arange(batches * scale.batch_size), names="seeds")
    pipe = gf.ItemSampler(items, batch_size=scale.batch_size, shuffle=True).transform(unchanged)
    with ExitStack() as stack:
        inline = stack.enter_context(gf.DataLoader(pipe, num_workers=0, seed=0))
        two = stack.enter_context(gf.DataLoader(pipe, num_workers=2, seed=0))
        cases: dict[str, Case] = {
            "pipeline without a loader": on_one_core(pipe),
            "inline": on_one_core(inline),
            "2 threads": epoch(two),
        }
        times = in_turn(cases, min(scale.repeats, EPOCHS), time.perf_counter)
    limits = {"inline": INLINE_MICROSECONDS, "2 threads": THREADS_MICROSECONDS}
    rows = compare(times, "pipeline without a loader", "us", 1e6 / batches)
    return [replace(row, goal=Goal(row.times.median, limits[row.what])) if row.what in limits else row for row in rows]


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


def epoch(loader: Iterable[object]) -> Callable[[int], None]:
    """Return a case that iterates over all mini-batches."""

    def run(_: int) -> None:
        for _batch in loader:
            pass

    return run


def on_one_core(loader: Iterable[object]) -> Callable[[int], None]:
    """Return the same case on one core."""

    def run(number: int) -> None:
        with one_core():
            epoch(loader)(number)

    return run


def bare(pipe: gf.Datapipe, pool: ThreadPoolExecutor, threads: int) -> Callable[[int], None]:
    """Return a case that calls the stages in threads, each on its share of the mini-batches."""
    (head,) = gf.find(pipe, gf.ItemSampler)
    stages = [stage for stage in gf.find(pipe, gf.Transform) if isinstance(stage, gf.Transform)]
    batches = list(head)

    def run_share(first: int) -> None:
        for minibatch in batches[first::threads]:
            result = minibatch
            for stage in stages:
                result = stage(result)

    def run(_: int) -> None:
        for future in [pool.submit(run_share, first) for first in range(threads)]:
            future.result()

    return run


def unchanged(batch: gf.MiniBatch) -> gf.MiniBatch:
    """Do nothing."""
    return batch
