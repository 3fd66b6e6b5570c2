"""Mini-batches of a graph and rows on disk that exceed memory, relative to the limits of the disk.

Each case runs in a separate process, whose memory a control group limits, and begins with an empty page cache. If no
group can be created, the title says so, and files that fit into memory stay there after the first reads.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times
from graphfeed import ops
from graphfeed.storage.memory import control_groups

NODES, EDGES, NUMBERS = 28_000_000, 400_000_000, 64
"""A quarter of ogbn-papers100M; a row has `NUMBERS` numbers of half precision, 128 bytes."""
BLOCK = 1 << 22
"""Number of edges or rows that are generated together; also the bytes of a sequential read."""
FANOUTS = [5, 10, 15]
DEPTH = 16
"""Number of concurrent random reads."""
LEAST_MEMORY = 1 << 30
"""Memory of a process without the graph, and space for mini-batches."""
ROWS_SHARE = 3 / 8
"""Part of the rows that may be in memory if the graph is: a tenth, and 2 GB more of 55 million rows."""
SECONDS = 60.0
"""Duration of a case in a full run."""
WINDOWS = (8, 32, 128)
BUSY = 0.7
"""Goal for the part of the disk's random reads that only sampling keeps busy."""


@dataclass(frozen=True)
class Case:
    """A way to read."""

    rows: str | None
    """How rows are read; None only samples."""
    memory: int
    """Maximum number of bytes of rows in memory."""
    graph_in_memory: bool = True
    options: dict[str, Any] = field(default_factory=lambda: {"window": 0})
    """Options of the loader."""
    bounded: bool = True
    """Whether there is less memory than the graph and the rows need."""


@dataclass
class Run:
    """Measurements of one case, starting at some time."""

    minibatches: int = 0
    seconds: float = 0.0
    pages: int = 0
    """Number of 4 KiB pages that the process has read from the disk."""
    faults: int = 0
    """Number of reads of mapped pages that had to wait."""

    @property
    def rate(self) -> float:
        """Mini-batches per second, or 0 if there were none."""
        return self.minibatches / max(self.seconds, 1e-9)


def report(scale: Scale) -> Iterator[str]:
    """Yield a table with the graph in memory, and one where it is on disk like the rows."""
    nodes, edges = int(NODES * scale.out_of_core), int(EDGES * scale.out_of_core)
    rows = 2 * NUMBERS * nodes
    graph = 8 * nodes + 4 * edges
    size, kept = graph + rows, int(ROWS_SHARE * rows)
    scale.cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(scale.cache).free
    if free < 1.2 * size:
        yield f"larger_than_memory: this takes {size / 1e9:.1f} GB, but {scale.cache} has {free / 1e9:.1f} GB left\n"
        return
    shape = f"{nodes / 1e6:.3g} M nodes, {edges / 1e6:.3g} M edges, {size / 1e9:.3g} GB"
    with tempfile.TemporaryDirectory(dir=scale.cache) as name:
        folder = Path(name)
        write_graph(folder / "graph", nodes, edges)
        write_rows(folder / "feat.npy", nodes)
        for title, cases, limit in (
            ("the graph in memory", cases_of(kept, True), graph + kept + LEAST_MEMORY),
            ("the graph on disk too", cases_of(rows // 4, False), max(size // 4, LEAST_MEMORY)),
        ):
            random, sequential = random_reads(folder / "feat.npy"), sequential_rate(folder / "feat.npy")
            with memory_group(limit) as group:
                runs = {what: run_case(folder, case, scale, group) for what, case in cases.items()}
            unbounded = "unbounded memory, as no control group can be made"
            bound = unbounded if group is None else f"{limit / 1e9:.1f} GB"
            yield render(
                f"larger_than_memory: {shape}, in {bound}, {title}; {scale.batch_size} seeds, fanouts {FANOUTS}; "
                "ratios to mini-batches in memory, and to the disk's random and sequential reads",
                [*limits(random, sequential), *lines(cases, runs, random, sequential)],
            )


def limits(random: float, sequential: float) -> list[Row]:
    """Return the limits of the disk."""
    return [
        Row(f"disk: random reads of 4 KiB, {DEPTH} at a time", "k/s", Times([random / 1e3]), 1.0),
        Row("disk: in sequence", "GB/s", Times([sequential / 1e9]), 1.0),
    ]


def lines(cases: dict[str, Case], runs: dict[str, Run], random: float, sequential: float) -> Iterator[Row]:
    """Yield the lines of all cases."""
    for name, run in runs.items():
        yield Row(f"{name}: mini-batches", "1/s", Times([run.rate]), run.rate / max(runs[IN_MEMORY].rate, 1e-9))
        if cases[name].bounded:
            pages = run.pages / max(run.seconds, 1e-9)
            goal = Goal(pages / random, BUSY, at_least=True) if cases[name].rows is None else None
            yield Row(f"{name}: pages per second", "k/s", Times([pages / 1e3]), pages / random, goal)
            yield Row(f"{name}: bytes per second", "GB/s", Times([4096 * pages / 1e9]), 4096 * pages / sequential)
            each = max(run.minibatches, 1)
            yield Row(f"{name}: pages per mini-batch", "k", Times([run.pages / each / 1e3]))
            if run.faults > run.minibatches:
                yield Row(f"{name}: waits for a mapped page", "k", Times([run.faults / each / 1e3]))


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


IN_MEMORY = "in memory"


def open_rows(path: Path, way: str, memory: int) -> gf.Feature:
    """Return the rows of a file as a feature that reads them in one way."""
    if way == "mapped":
        # As users read a memory-mapped array.
        return gf.TorchBasedFeature(torch.from_numpy(np.load(path, mmap_mode="c")))
    file = gf.DiskBasedFeature(path)
    if way == "in memory":
        return file.read_into_memory()
    return gf.cpu_cached_feature(file, memory, "sieve") if way == "behind SIEVE" else file


def cases_of(memory: int, graph_in_memory: bool) -> dict[str, Case]:
    """Return the cases with the given number of bytes for rows."""
    windows = {
        f"windows of {'any size' if window is None else window}": Case(
            "on disk", memory, graph_in_memory, {"window": window, "memory_limit": memory}
        )
        for window in (*WINDOWS, None)
    }
    return {
        IN_MEMORY: Case("in memory", memory, bounded=False),
        **({} if graph_in_memory else {"graph alone": Case(None, memory, graph_in_memory)}),
        "rows in a mapped array": Case("mapped", memory, graph_in_memory),
        "DiskBasedFeature": Case("on disk", memory, graph_in_memory),
        "DiskBasedFeature behind SIEVE": Case("behind SIEVE", memory, graph_in_memory),
        **windows,
    }


def run_case(folder: Path, case: Case, scale: Scale, group: Path | None) -> Run:
    """Run a case in a separate process, and end it when its time is over, even if it is blocked."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["graphfeed", "benchmarks.larger_than_memory"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(there, folder, case, scale, group if case.bounded else None))
    seconds = SECONDS * min(1.0, scale.repeats / 30)
    points: list[Run] = []
    process.start()
    there.close()
    try:
        with here:
            while not points or points[-1].seconds - points[0].seconds < seconds:
                # Opening, and the first mini-batch, may take as long again.
                left = seconds - (points[-1].seconds - points[0].seconds) if len(points) > 1 else 2 * seconds
                if not here.poll(left):
                    break
                points.append(here.recv())
        process.join(SECONDS / 10)
    except EOFError:
        pass  # all mini-batches came, or an error is printed above
    finally:
        process.kill()
        process.join()
    return steady(points, seconds)


def steady(points: list[Run], seconds: float) -> Run:
    """Return the measurements after the first third of the time, in which caches fill and windows grow."""
    if len(points) < 2:
        return Run(seconds=seconds)
    begins = [point for point in points[:-1] if point.seconds - points[0].seconds <= seconds / 3]
    first, last = begins[-1], points[-1]
    return Run(*(getattr(last, name.name) - getattr(first, name.name) for name in fields(Run)))


def measure(out: Connection, folder: Path, case: Case, scale: Scale, group: Path | None) -> None:
    """Send the measurements so far, at the beginning and after each mini-batch."""
    for path in folder.iterdir():
        forget_pages(path)
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    graph = gf.load_graph(folder / "graph")
    if case.graph_in_memory:
        graph = gf.fused_csc_sampling_graph(graph.csc_indptr.clone(), graph.indices.clone())
    seeds = gf.ItemSet(graph.total_num_nodes, names="seeds")
    pipe = gf.ItemSampler(seeds, scale.batch_size, shuffle=True).sample_neighbor(graph, FANOUTS)
    if case.rows is not None:
        feature = open_rows(folder / "feat.npy", case.rows, case.memory)
        pipe = pipe.fetch_feature(gf.BasicFeatureStore({("node", None, "feat"): feature}), node_feature_keys=["feat"])
    for number, minibatch in enumerate(chain([None], gf.DataLoader(pipe, 0, seed=0, **case.options))):
        if minibatch is not None and case.rows is not None and not is_right(minibatch):
            raise AssertionError(f"{case}: rows of other ids")
        usage = getrusage(RUSAGE_SELF)
        try:
            out.send(Run(number, time.perf_counter(), usage.ru_inblock // 8, usage.ru_majflt))
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


def random_reads(path: Path, seconds: float = 2.0) -> float:
    """Return the number of random pages per second that threads read from a file that is not in memory."""
    forget_pages(path)
    pages, done, end = path.stat().st_size // 4096, [0] * DEPTH, time.perf_counter() + seconds
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

        def read(thread: int) -> None:
            chance, out = torch.Generator().manual_seed(thread), torch.empty(64, 4096, dtype=torch.uint8)
            while time.perf_counter() < end:
                # Without the GIL, one system call each.
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
    """Return the number of bytes per second of sequential reads from a file."""
    forget_pages(path)
    buffer, done, start = bytearray(BLOCK), 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while time.perf_counter() - start < seconds and (count := file.readinto(buffer)):
            done += count
    return done / (time.perf_counter() - start)
