"""Mini-batches from graphs and rows that exceed memory, read in several ways, and the limits of the disk.

Each case runs in a separate process, whose memory a control group limits, and begins with an empty page cache. If no
group can be created, the title says so, and files that fit into memory stay there after the first reads.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
import torch

import graphfeed as gf
from benchmarks.scale import Scale, lacks_room
from benchmarks.table import Row, render
from benchmarks.timing import Times
from graphfeed import ops
from graphfeed.storage.memory import control_groups

NODES, EDGES, NUMBERS = 16_000_000, 450_000_000, 64
"""The graph and its rows have 2 GB each; a row has `NUMBERS` numbers of half precision, 128 bytes."""
BLOCK = 1 << 22
"""Number of edges or rows that are generated together."""
FANOUTS = [5, 10]
FACTORS = 4.0, 1.5
"""Size of the rows, and of a graph on disk, as multiples of the memory for them."""
DEPTH = 16
"""Number of concurrent reads that measure the disk."""
PAGE, SPAN = 1 << 12, 1 << 20
"""Sizes of random and of sequential reads, in bytes."""
PROCESS_BYTES = 300 << 20
"""Memory for the process and its mini-batches, besides the graph and the rows."""
SECONDS, MOST_SECONDS, LEAST_MINIBATCHES = 60.0, 90.0, 30
"""A case takes 60 seconds, or up to 90 if it needs more for 30 mini-batches."""
FULL = 30
"""Number of repeats of a full run."""
PARTS = 5
"""Number of equal parts of the time that are measured, after a third in which caches fill and windows grow."""
PLAIN = "read for each mini-batch"
IN_MEMORY = "in memory"
MAPPED, CACHED, AHEAD = "memory-mapped", "with a SIEVE cache", "read ahead"
WAYS = PLAIN, MAPPED, CACHED, AHEAD
"""Ways to read rows."""
CACHE_SHARE = 3 / 4
"""Share of the memory that the cache takes; the rest is for its bookkeeping and for mini-batches."""


@dataclass
class Run:
    """Measurements of a case at some time."""

    minibatches: int = 0
    seconds: float = 0.0
    pages: int = 0
    """Number of 4 KiB pages that the process has read from the disk."""


@dataclass(frozen=True)
class Case:
    """A way to read, and the memory for it."""

    way: str
    memory: int
    """Number of bytes for the rows, and for the graph if it is on disk."""
    graph_in_memory: bool


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of the disk's limits, and one for each size of memory and place of the graph."""
    nodes, edges = int(NODES * scale.out_of_core), int(EDGES * scale.out_of_core)
    rows, graph = 2 * NUMBERS * nodes, 8 * nodes + 4 * edges
    if lack := lacks_room(scale.cache, "larger_than_memory", graph + rows):
        yield lack
        return
    with tempfile.TemporaryDirectory(dir=scale.cache) as name:
        folder = Path(name)
        write_graph(folder / "graph", nodes, edges)
        write_rows(folder / "feat.npy", nodes)
        yield render("larger_than_memory: direct reads of the disk, 16 at a time", list(limits(folder / "feat.npy")))
        seconds = SECONDS * min(1.0, scale.repeats / FULL)
        whole = steady(run_case(folder, Case(IN_MEMORY, 0, True), None, seconds / 4, scale.batch_size))
        for factor in FACTORS:
            for in_memory in (True, False):
                memory = int(rows / factor)
                with memory_group(PROCESS_BYTES + memory + in_memory * graph) as group:
                    # Memory-mapped rows yield hardly any mini-batch, so only the case with most memory has them.
                    ways = [way for way in WAYS if way != MAPPED or (in_memory and factor == min(FACTORS))]
                    cases = {way: Case(way, memory, in_memory) for way in ways}
                    runs = {
                        way: run_case(folder, case, group, seconds, scale.batch_size) for way, case in cases.items()
                    }
                size = f"{rows / 1e9:.3g} GB of rows, {factor:g} times the memory"
                place = "the graph in memory" if in_memory else "and a graph of the same size on disk"
                bound = "" if group else "; unbounded memory, as no control group can be made"
                yield render(
                    f"larger_than_memory: {size}, {place}{bound}; {scale.batch_size} seeds, fan-outs {FANOUTS}; ratios "
                    "to reading for each mini-batch",
                    list(lines(runs, whole)),
                )


def limits(path: Path) -> Iterator[Row]:
    """Yield the limits of the disk: random reads of a page, and long reads one after the other, past the page cache."""
    for what, size, unit in ((f"random reads of {PAGE >> 10} KiB", PAGE, 1e3), ("long reads of 1 MiB", SPAN, 1e9)):
        rates = Times([read_rate(path, size, part) / unit for part in range(PARTS)])
        yield Row(what, "k/s" if size == PAGE else "GB/s", rates if size == PAGE else rates.times(SPAN))


def read_rate(path: Path, size: int, part: int, seconds: float = 1.0) -> float:
    """Return the number of reads per second of `DEPTH` threads; small ones are random, long ones sequential."""
    count = path.stat().st_size // size
    flags = os.O_RDONLY | getattr(os, "O_DIRECT", 0)
    descriptor, end = os.open(path, flags), time.perf_counter() + seconds

    def read(thread: int) -> int:
        chance, done = torch.Generator().manual_seed(DEPTH * part + thread), 0
        each = min(64 if size == PAGE else 1, count)
        out, places = torch.empty(each, size, dtype=torch.uint8), torch.arange(each)
        first = (DEPTH * part + thread) * count // (DEPTH * PARTS)
        while time.perf_counter() < end:
            random = torch.randint(count, (each,), generator=chance).sort().values
            ids = random if size == PAGE else torch.tensor([(first + done) % count])
            ops.read_rows(descriptor, 0, ids, out, places)
            done += each
        return done

    try:
        with ThreadPoolExecutor(DEPTH) as threads:
            start = time.perf_counter()
            return sum(threads.map(read, range(DEPTH))) / (time.perf_counter() - start)
    finally:
        os.close(descriptor)


def write_graph(path: Path, nodes: int, edges: int) -> None:
    """Save a graph with power-law in-degrees, whose popular sources are spread over the ids."""
    chance = np.random.default_rng(0)
    sums = np.cumsum(np.minimum(chance.pareto(1.6, nodes) + 0.3, 20_000))
    indptr = np.zeros(nodes + 1, np.int64)
    indptr[1:] = sums / sums[-1] * edges
    indptr[-1] = edges
    indices = np.empty(edges, np.int32)
    for start in range(0, edges, BLOCK):
        ranks = (chance.random(min(BLOCK, edges - start)) ** 3 * nodes).astype(np.int64)
        indices[start : start + BLOCK] = ranks * 2_654_435_761 % nodes
    gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices)).save(path)


def write_rows(path: Path, nodes: int) -> None:
    """Write rows that contain their ids."""
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (nodes, NUMBERS)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, nodes, BLOCK):
            ids = np.arange(start, min(start + BLOCK, nodes))
            file.write(np.repeat((ids % 2048).astype("<f2"), NUMBERS).data)
        file.flush()
        os.fsync(file.fileno())


def lines(runs: dict[str, list[Run]], whole: list[Run]) -> Iterator[Row]:
    """Yield the mini-batches per second of each way, and the bytes that it reads from the disk."""
    parts = {way: steady(points) for way, points in runs.items()}
    plain = rates(parts[PLAIN]).median
    for way, own in parts.items():
        rate = rates(own)
        yield Row(f"{way}: mini-batches", "1/s", rate, rate.median / plain if plain else None)
        yield Row(f"{way}: from the disk", "GB/s", Times([PAGE * run.pages / run.seconds / 1e9 for run in own]))
    yield Row(f"{IN_MEMORY}: mini-batches", "1/s", rates(whole), rates(whole).median / plain if plain else None)


def rates(parts: list[Run]) -> Times:
    """Return the mini-batches per second of each part."""
    return Times([run.minibatches / run.seconds for run in parts])


def steady(points: list[Run]) -> list[Run]:
    """Return the measurements of equal parts of the time after the first third."""
    begin, end = points[0].seconds + (points[-1].seconds - points[0].seconds) / 3, points[-1].seconds
    bounds = [begin + (end - begin) * part / PARTS for part in range(PARTS + 1)]
    # The state at each bound: after the last mini-batch before it. A part without mini-batches has a rate of 0.
    states = [max((own for own in points if own.seconds <= bound), key=lambda own: own.seconds) for bound in bounds]
    parts = []
    for (first, last), (low, high) in zip(pairwise(states), pairwise(bounds), strict=True):
        gained = {name.name: getattr(last, name.name) - getattr(first, name.name) for name in fields(Run)}
        # From mini-batch to mini-batch, so that no part counts a fraction of one.
        parts.append(Run(**{**gained, "seconds": gained["seconds"] or max(high - low, 1e-9)}))
    return parts


def open_rows(path: Path, case: Case) -> gf.Feature:
    """Return the rows of a file as a feature that reads them in one way."""
    if case.way == MAPPED:
        return gf.TorchBasedFeature(torch.from_numpy(np.load(path, mmap_mode="c")))
    file = gf.DiskBasedFeature(path)
    if case.way == IN_MEMORY:
        return file.read_into_memory()
    return gf.cpu_cached_feature(file, int(CACHE_SHARE * case.memory), "sieve") if case.way == CACHED else file


def run_case(folder: Path, case: Case, group: Path | None, seconds: float, batch_size: int) -> list[Run]:
    """Run a case in a separate process, and end it when its time is over, even if it is blocked."""
    context = get_context("spawn")  # a child of this process, whose time is none of other programs
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(there, folder, case, group, batch_size))
    points: list[Run] = []
    process.start()
    there.close()
    try:
        with here:
            begin, most = None, seconds * MOST_SECONDS / SECONDS
            while begin is None or (len(points) <= LEAST_MINIBATCHES or points[-1].seconds - begin < seconds):
                # Opening may take as long again.
                left = seconds if begin is None else begin + most - time.monotonic()
                if left <= 0 or not here.poll(left):
                    break
                points.append(here.recv())
                begin = begin or points[0].seconds
    except EOFError:
        pass  # all mini-batches came, or an error is printed above
    finally:
        process.kill()
        process.join()
    now = time.monotonic()
    return points or [Run(seconds=now - seconds), Run(seconds=now)]


def measure(out: Connection, folder: Path, case: Case, group: Path | None, batch_size: int) -> None:
    """Send the measurements so far, at the beginning and after each mini-batch."""
    for path in folder.iterdir():
        forget_pages(path)
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    graph = gf.load_graph(folder / "graph")
    if case.graph_in_memory:
        graph = gf.fused_csc_sampling_graph(graph.csc_indptr.clone(), graph.indices.clone())
    store = gf.BasicFeatureStore({("node", None, "feat"): open_rows(folder / "feat.npy", case)})
    pipe = gf.ItemSampler(gf.ItemSet(graph.total_num_nodes, names="seeds"), batch_size, shuffle=True)
    pipe = pipe.sample_neighbor(graph, FANOUTS).fetch_feature(store, node_feature_keys=["feat"])
    window = None if case.way == AHEAD else 0
    for number, minibatch in enumerate(chain([None], gf.DataLoader(pipe, seed=0, window=window))):
        if minibatch is not None and not is_right(minibatch):
            raise AssertionError(f"{case}: rows of other ids")
        try:
            out.send(Run(number, time.monotonic(), getrusage(RUSAGE_SELF).ru_inblock // 8))
        except BrokenPipeError:
            return


def is_right(minibatch: gf.MiniBatch) -> bool:
    """Return whether each row is that of its id."""
    ids, rows = minibatch.input_nodes, minibatch.node_features["feat"]
    return torch.equal(rows[:, 0].long(), torch.as_tensor(ids).long() % 2048)


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """Create a control group with a memory limit inside the one of this process; None if that is not allowed."""
    own = [folder for folder in control_groups("memory") if (folder[0] / "cgroup.procs").is_file()]
    group: Path | None = None
    if own:
        folder, version = own[-1]
        group = folder / f"graphfeed-{os.getpid()}"
        try:
            group.mkdir()
            (group / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit))
        except OSError:
            group = None
    try:
        yield group
    finally:
        if group is not None:
            group.rmdir()


def forget_pages(path: Path) -> None:
    """Ask the system to drop the cached pages of a file that no process has mapped."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
