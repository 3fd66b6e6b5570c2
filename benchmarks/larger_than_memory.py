"""Mini-batches of a graph and rows on a disk, in a quarter of their size of memory, against the disk's own limits.

Each case runs in a process of its own, whose memory a control group bounds, and begins with nothing in the page cache.
Where no group can be made, the title says so, and files that fit into memory stay there after the first reads.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks.memory import in_new_process
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times
from graphfeed import ops
from graphfeed.storage.memory import control_groups

NODES, EDGES, NUMBERS = 28_000_000, 400_000_000, 64
"""A quarter of ogbn-papers100M; a row has so many numbers of half precision, 128 bytes."""
BLOCK = 1 << 22
"""How many edges or rows are made at a time; and the bytes of a sequential read."""
FANOUTS = [5, 10, 15]
DEPTH = 16
"""How many random reads wait at a time."""
LEAST_MEMORY = 1 << 30
"""What a process takes that has nothing of the graph, and room for mini-batches."""
MOST_SECONDS = 40.0
"""A case is stopped after its first mini-batch beyond this, or if a mini-batch takes longer."""
BUSY = 0.7
"""Which part of the disk's random reads sampling alone is to keep busy."""


@dataclass(frozen=True)
class Case:
    """What one way to read did."""

    seconds: list[float]
    """Of each mini-batch."""
    pages: list[int]
    """How many 4 KiB pages the process has read from the disk for it."""
    faults: list[int]
    """How many reads of mapped pages had to wait."""
    stopped: bool = False
    """Whether the last mini-batch was not waited for."""


def report(scale: Scale) -> Iterator[str]:
    """Yield one table."""
    nodes, edges = int(NODES * scale.out_of_core), int(EDGES * scale.out_of_core)
    size = 8 * nodes + 4 * edges + 2 * NUMBERS * nodes
    scale.cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(scale.cache).free
    if free < 1.2 * size:
        yield f"larger_than_memory: this takes {size / 1e9:.1f} GB, but {scale.cache} has {free / 1e9:.1f} GB left\n"
        return
    limit = max(size // 4, LEAST_MEMORY)
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder, memory_group(limit) as group:
        write_graph(Path(folder) / "graph", nodes, edges)
        write_rows(Path(folder) / "feat.npy", nodes)
        runs = {
            name: in_new_process(measure, Path(folder), name, scale, None if name == "in memory" else group)
            for name in CASES
        }
        random, sequential = random_reads(Path(folder) / "feat.npy"), sequential_rate(Path(folder) / "feat.npy")
    bound = "in unbounded memory, as no control group can be made" if group is None else f"in {limit / 1e9:.1f} GB"
    yield render(
        f"larger_than_memory: {nodes / 1e6:.3g} M nodes, {edges / 1e6:.3g} M edges, {size / 1e9:.3g} GB, {bound}; "
        f"{scale.batch_size} seeds, fanouts {FANOUTS}; ratio of mini-batches to those in memory, and of pages read per "
        "second to the disk's random reads",
        [*limits(random, sequential), *(row for name, run in runs.items() for row in rows_of(name, run, runs, random))],
    )


def limits(random: float, sequential: float) -> list[Row]:
    """Return what the disk can do."""
    return [
        Row(f"disk: random reads of 4 KiB, {DEPTH} at a time", "k/s", Times([random / 1e3]), 1.0),
        Row("disk: in sequence", "GB/s", Times([sequential / 1e9])),
    ]


def rows_of(name: str, run: Case, runs: dict[str, Case], random: float) -> list[Row]:
    """Return the lines of one case."""
    rates, whole = [1 / second for second in run.seconds], Times(runs["in memory"].seconds).median
    stopped = f", none in the last {run.seconds[-1]:.0f} s" if run.stopped else ""
    lines = [Row(f"{name}: mini-batches{stopped}", "1/s", Times(rates), Times(rates).median * whole)]
    if name != "in memory":
        busy = [pages / second / random for pages, second in zip(run.pages, run.seconds, strict=True)]
        goal = Goal(Times(busy).median, BUSY, at_least=True) if name == "graph alone" else None
        read = Times([pages / 1e3 for pages in run.pages])
        lines.append(Row(f"{name}: pages read per mini-batch", "k", read, Times(busy).median, goal))
        lines.append(Row(f"{name}: waits for a mapped page", "k", Times([count / 1e3 for count in run.faults])))
    return lines


def write_graph(path: Path, nodes: int, edges: int) -> None:
    """Save a graph with in-degrees by a power law, whose popular sources lie scattered."""
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
    """Write rows that tell which they are."""
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (nodes, NUMBERS)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, nodes, BLOCK):
            ids = np.arange(start, min(start + BLOCK, nodes))
            file.write(np.repeat((ids % 2048).astype("<f2"), NUMBERS).data)
        file.flush()
        os.fsync(file.fileno())


def copy_graph(graph: gf.FusedCSCSamplingGraph) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose arrays are not in a file."""
    return gf.fused_csc_sampling_graph(graph.csc_indptr.clone(), graph.indices.clone())


IN_WINDOWS = "DiskBasedFeature, in windows"
"""Reads rows for several mini-batches at once, in a quarter of their size of memory; the others read for each alone."""
CASES: dict[str, Callable[[Path], tuple[gf.FusedCSCSamplingGraph, gf.Feature | None]]] = {
    "in memory": lambda folder: (
        copy_graph(gf.load_graph(folder / "graph")),
        gf.DiskBasedFeature(folder / "feat.npy").read_into_memory(),
    ),
    "graph alone": lambda folder: (gf.load_graph(folder / "graph"), None),
    "rows in a mapped array": lambda folder: (
        gf.load_graph(folder / "graph"),
        gf.TorchBasedFeature(torch.from_numpy(np.load(folder / "feat.npy", mmap_mode="c"))),
    ),
    "DiskBasedFeature": lambda folder: (gf.load_graph(folder / "graph"), gf.DiskBasedFeature(folder / "feat.npy")),
    IN_WINDOWS: lambda folder: (gf.load_graph(folder / "graph"), gf.DiskBasedFeature(folder / "feat.npy")),
    "DiskBasedFeature behind SIEVE": lambda folder: (
        gf.load_graph(folder / "graph"),
        gf.cpu_cached_feature(
            gf.DiskBasedFeature(folder / "feat.npy"), (folder / "feat.npy").stat().st_size // 10, "sieve"
        ),
    ),
}
"""How graph and rows are read."""


def measure(folder: Path, name: str, scale: Scale, group: Path | None) -> Case:
    """Read mini-batches in one way."""
    for path in folder.iterdir():
        forget_pages(path)
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    graph, feature = CASES[name](folder)
    seeds = gf.ItemSet(graph.total_num_nodes, names="seeds")
    pipe = gf.ItemSampler(seeds, scale.batch_size, shuffle=True).sample_neighbor(graph, FANOUTS)
    if feature is not None:
        pipe = pipe.fetch_feature(gf.BasicFeatureStore({("node", None, "feat"): feature}), node_feature_keys=["feat"])
    rows = (folder / "feat.npy").stat().st_size
    reading: dict[str, Any] = {"memory_limit": rows // 4} if name == IN_WINDOWS else {"window": 0}
    case, batches = Case([], [], []), iter(gf.DataLoader(pipe, 0, seed=0, timeout=MOST_SECONDS, **reading))
    begin = time.perf_counter()
    while len(case.seconds) < scale.repeats and time.perf_counter() - begin < MOST_SECONDS:
        before, start = getrusage(RUSAGE_SELF), time.perf_counter()
        minibatch = None
        with suppress(TimeoutError):
            minibatch = next(batches)
        case.seconds.append(time.perf_counter() - start)
        after = getrusage(RUSAGE_SELF)
        case.pages.append((after.ru_inblock - before.ru_inblock) // 8)
        case.faults.append(after.ru_majflt - before.ru_majflt)
        if minibatch is None:
            return replace(case, stopped=True)
        if feature is not None and not is_right(minibatch):
            raise AssertionError(f"{name}: rows of other ids")
    return case


def is_right(minibatch: gf.MiniBatch) -> bool:
    """Tell whether each row is that of its id."""
    ids, rows = minibatch.input_nodes, minibatch.node_features["feat"]
    return torch.equal(rows[:, 0].long(), torch.as_tensor(ids).long() % 2048)


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """Make a control group inside of this process's own, for processes with so much memory; None where none may be."""
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
    """Ask the system to drop what it holds of a file that no process has mapped."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def random_reads(path: Path, seconds: float = 2.0) -> float:
    """Return how many pages per second threads read from anywhere in a file that is not in memory."""
    forget_pages(path)
    pages, done, end = path.stat().st_size // 4096, [0] * DEPTH, time.perf_counter() + seconds
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

        def read(thread: int) -> None:
            chance, out = torch.Generator().manual_seed(thread), torch.empty(64, 4096, dtype=torch.uint8)
            while time.perf_counter() < end:
                # Without the interpreter's lock, one call of the system each.
                ids = 2 * torch.randint(0, max(pages // 2, 1), (64,), generator=chance).sort().values
                ops.read_rows(file.fileno(), 0, ids, out, torch.arange(64))
                done[thread] += 64

        threads = [threading.Thread(target=read, args=(number,)) for number in range(DEPTH)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(done) / (time.perf_counter() - start)


def sequential_rate(path: Path, seconds: float = 2.0) -> float:
    """Return how many bytes per second are read from a file in order."""
    forget_pages(path)
    buffer, done, start = bytearray(BLOCK), 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while time.perf_counter() - start < seconds and (count := file.readinto(buffer)):
            done += count
    return done / (time.perf_counter() - start)
