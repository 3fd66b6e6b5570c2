"""Time from `iter(loader)` to the first mini-batch of worker processes, and the memory of a large graph.

Times are wall-clock times, since starting processes wait for each other. On a busy machine, compare the
processor time: the process copies arrays that others can't map while these start, so the clock shows the larger of both
if cores are idle. Arrays allocated by graphfeed are mapped within 0.1 s. Copying other tensors takes 0.2 s per
GB, and up to 3 s on a virtual machine that gets memory from its host on first use. The fork server and a worker
take 2.1 s, of which importing torch is 1.3 and the other imports 0.5. Loading kernels takes less than 0.1 s.

Memory counts pages that can't be read again from a disk, of the process, of the fork server and of the workers, and
memory files, each only once, minus the memory of the same program with a graph a thousandth of the size.
"""

import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

MAKE = """
import json, sys, time
import torch
import graphfeed as gf
edges, path, num_workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def make(own):
    nodes = max(edges // 48, 1)
    sources = torch.randint(nodes, (edges,))
    if not own:
        return gf.from_coo((sources, torch.arange(edges) % nodes), nodes)
    ids = {gf.ORIGINAL_EDGE_ID: torch.arange(edges)}
    return gf.fused_csc_sampling_graph(torch.arange(nodes + 1) * edges // nodes, sources, edge_attributes=ids)
"""
SAVE = "make(True).save(path)"
START = """
graph = make(path == "own") if path in ("", "own") else gf.load_graph(path)
copying = -time.monotonic()
graph.indices.clone()
copying += time.monotonic()
pipe = gf.ItemSampler(gf.ItemSet(graph.num_nodes, names="seeds"), batch_size=1024, shuffle=True)
pipe = pipe.sample_neighbor(graph, [10, 10])
with gf.DataLoader(pipe, num_workers=num_workers, worker="process", seed=0) as loader:
    print("ready", flush=True)
    seconds, own = -time.monotonic(), -time.process_time()
    batches = iter(loader)
    next(batches)
    print(json.dumps([copying, seconds + time.monotonic(), own + time.process_time()]), flush=True)
    sys.stdin.readline()
    for _ in zip(range(8 * num_workers), batches):
        pass
    print("done", flush=True)
    sys.stdin.readline()
"""
WORKERS = (1, 2)
GOAL_SECONDS = 3.0
"""Goal beyond the time to copy the sources of the edges once, if that is needed."""
GOALS_OF_PEAK = {"made by from_coo": 1.1, "of torch tensors": 2.1, "in a file": 0.1}
"""Goals for the peak memory, relative to the graph, by where the graph is stored."""
EDGE_BYTES = 16
SMALL = 1000
ROUNDS = 3
"""Maximum number of rounds: each moves the whole graph."""
STEP_SECONDS = 0.1
"""Time between two measurements of memory."""


@dataclass(frozen=True)
class Start:
    """Measurements of one start of workers."""

    copying: float
    """Seconds to copy the graph once."""
    seconds: float
    own_seconds: float
    """Processor time of the process that iterates the loader."""
    started_seconds: float
    """Processor time of the fork server and its workers."""
    peak: int
    """Peak memory in bytes, until all workers have produced mini-batches."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each place of a graph."""
    scale.cache.mkdir(parents=True, exist_ok=True)
    edges = scale.started_bytes // EDGE_BYTES
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        for place, goal in GOALS_OF_PEAK.items():
            title = f"start of worker processes: a graph of {scale.started_bytes / 1e9:.2g} GB {place}"
            where = {"made by from_coo": "", "of torch tensors": "own"}.get(place, folder)
            yield render(title, measure(scale, edges, where, goal))


def measure(scale: Scale, edges: int, where: str, goal: float) -> list[Row]:
    """Return the time and the memory for each number of workers.

    Args:
        scale: How often to measure.
        edges: The number of edges.
        where: Empty for a graph that graphfeed made, "own" for one of torch tensors, or a folder for its file.
        goal: Maximum memory, relative to that of the graph.
    """
    rows = []
    for count in (edges // SMALL, edges) if where not in ("", "own") else ():
        program(MAKE + SAVE, count, where).communicate(timeout=600)
    start(edges // SMALL, where, 1)  # compiles kernels that are not on disk, which takes memory
    for num_workers in WORKERS:
        base = start(edges // SMALL, where, num_workers).peak
        found = [start(edges, where, num_workers) for _ in range(min(scale.repeats, ROUNDS))]
        clock = Times([own.seconds for own in found])
        copying = Times([own.copying for own in found])
        share = Times([(own.peak - base) / (edges * EDGE_BYTES) for own in found])
        limit = Goal(clock.median, round(GOAL_SECONDS + (copying.median if where == "own" else 0.0), 2))
        name = "1 worker" if num_workers == 1 else f"{num_workers} workers"
        rows += [
            Row(f"{name}: copying the graph once", "s", copying),
            Row(f"{name}: first mini-batch", "s", clock, goal=limit),
            Row("   processor time of the process", "s", Times([own.own_seconds for own in found])),
            Row("   processor time of those it starts", "s", Times([own.started_seconds for own in found])),
            Row(f"{name}: most memory, over the graph's", "", share, goal=Goal(share.median, goal)),
        ]
    return rows


def program(text: str, edges: int, where: str, num_workers: int = 0) -> "subprocess.Popen[str]":
    """Start a process with a graph of the given number of edges."""
    path = where if where in ("", "own") else str(Path(where, str(edges)))
    arguments = [sys.executable, "-c", text, str(edges), path, str(num_workers)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def start(edges: int, where: str, num_workers: int) -> Start:
    """Start workers in a separate process, and monitor it."""
    with program(MAKE + START, edges, where, num_workers) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the process ended before it had a loader; see what it printed")
        peak = watch(process)
        copying, seconds, own_seconds = json.loads(process.stdout.readline())
        started_seconds = sum(map(processor_seconds, family(process.pid)[1:]))
        process.stdin.write("go on\n")
        peak = max(peak, watch(process))
    return Start(copying, seconds, own_seconds, started_seconds, peak)


def watch(process: "subprocess.Popen[str]") -> int:
    """Return the peak memory of a process and those that it started, until it prints something."""
    assert process.stdout is not None
    peak = memory_of(process.pid)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not selector.select(STEP_SECONDS):
            peak = max(peak, memory_of(process.pid))
    return max(peak, memory_of(process.pid))


def family(process: int) -> list[int]:
    """Return the ids of a process and of all that it started, directly or indirectly."""
    found = [process]
    for own in found:
        with suppress(OSError):  # it has ended
            for thread in Path("/proc", str(own), "task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def processor_seconds(process: int) -> float:
    """Return the processor time of a process."""
    fields = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> int:
    """Return the bytes of anonymous pages and memory files of a process and those that it started."""
    total, files = 0, {}
    for own in family(process):
        folder = Path("/proc", str(own))
        with suppress(OSError):  # it has ended
            found = re.search(r"Pss_Anon:\s+(\d+) kB", (folder / "smaps_rollup").read_text())
            total += 0 if found is None else int(found[1]) << 10
            for descriptor in (folder / "fd").iterdir():
                if os.readlink(descriptor).startswith("/memfd:"):
                    state = descriptor.stat()
                    files[state.st_ino] = state.st_blocks * 512
    return total + sum(files.values())
