"""Memory of processes, each case measured in a separate process."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

import graphfeed as gf
from benchmarks.graphs import load_edges
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import Times

Given = ParamSpec("Given")
Result = TypeVar("Result")

STATUS = "/proc/self/status"
PARTS = ("VmHWM", "RssAnon", "RssFile")
ROUNDS = 5
"""Maximum number of rounds: each starts a process for each case."""

TORCH, OURS = "import numpy, torch", "import graphfeed"
EPOCH = """
import graphfeed as gf
graph = gf.load_graph({path!r})
pipe = gf.ItemSampler(gf.ItemSet(graph.total_num_nodes, names="seeds"), {batch_size}, shuffle=True)
with gf.DataLoader(pipe.sample_neighbor(graph, [5, 10, 15]), num_workers=2, seed=0) as loader:
    for number, _ in zip(range({count}), loader):
        pass
"""


@dataclass(frozen=True)
class Memory:
    """Bytes of memory of a process."""

    whole: int
    """Peak, including pages of files that are shared with other processes."""
    anonymous: int
    """Private memory."""
    file: int
    """Libraries and other mapped files, which the system can mostly drop and read again."""


def report(scale: Scale) -> Iterator[str]:
    """Yield the table."""
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        path = Path(folder) / "graph"
        indptr, indices = (torch.from_numpy(array) for array in load_edges(scale.products, scale.cache))
        gf.fused_csc_sampling_graph(indptr, indices).save(path)
        size = path.stat().st_size / 1e6
        given = {"path": str(path), "batch_size": scale.batch_size, "count": scale.epoch_batches}
        epoch = f"{scale.epoch_batches} mini-batches of two threads, a graph of {size:.0f} MB in a file"
        cases = {TORCH: TORCH, OURS: OURS, epoch: EPOCH.format(**given)}
        rounds = range(min(scale.repeats, ROUNDS))
        sizes = [[memory_after(code).anonymous / 1e6 for code in cases.values()] for _ in rounds]
        rows = [Row(name, "MB", Times(own)) for name, own in zip(cases, zip(*sizes, strict=True), strict=True)]
    yield render(f"memory: private memory of a process, {scale.products.name}", rows)


def in_new_process(function: Callable[Given, Result], *args: Given.args, **options: Given.kwargs) -> Result:
    """Call a function in a new process, so that its memory has nothing of another run."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **options).result()


def memory(status: str | None = None) -> Memory:
    """Return the memory of this process, or of the one with this status; `getrusage` counts the parent's peak."""
    text = Path(STATUS).read_text() if status is None else status
    whole, anonymous, file = (1024 * int(text.split(f"{what}:")[1].split()[0]) for what in PARTS)
    return Memory(whole, anonymous, file)


def memory_after(code: str) -> Memory:
    """Return the memory of a new process that has only run some code."""
    root = Path(gf.__file__).parents[1]
    show = f"{code}\nprint(open({STATUS!r}).read())"
    done = subprocess.run([sys.executable, "-c", show], cwd=root, capture_output=True, text=True, check=True)
    return memory(done.stdout)
