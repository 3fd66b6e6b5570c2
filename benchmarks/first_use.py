"""A fresh process until its first mini-batch of a small graph, part by part, with compiled kernels on disk.

This is processor time, so that other processes on the machine don't count. The machine code of a kernel is read,
checked and linked when the kernel is first called; "of this" is the sum of that, by the clock. `cold` shows the same
with nothing on disk.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

PROGRAM = """
import json, logging, sys, time
logging.disable()  # that kernels are compiled is known
marks = [time.process_time()]
mark = lambda: marks.append(time.process_time())
import torch
mark()
import graphfeed as gf
mark()
from graphfeed.ops.cpu.compiler.store import watch_kernels
loads = []
with watch_kernels(loads.append):
    ends = torch.arange(20_000) % 997, torch.arange(20_000) % 1000
    graph, seeds = eval(sys.argv[1])
    mark()
    rows = gf.TorchBasedFeature(torch.rand(1000, 64))
    store = gf.BasicFeatureStore({("node", kind, "x"): rows for kind in (None, "a", "b")})
    items = gf.ItemSampler(seeds, batch_size=64, shuffle=True)
    pipe = eval(sys.argv[2])
    waited = -time.monotonic()
    batches = iter(gf.DataLoader(pipe, num_workers=0, seed=0))
    next(batches)
    waited += time.monotonic()
    mark()
    next(batches)
    mark()
print(json.dumps([marks, sum(kernel.seconds for kernel in loads), waited]))
"""
NODES = "gf.from_coo(ends, 1000), gf.ItemSet(1000, names='seeds')"
TYPED = (
    "gf.from_coo({'a:to:b': ends, 'b:to:a': ends}, {'a': 1000, 'b': 1000}), "
    "gf.HeteroItemSet({'a': gf.ItemSet(1000, names='seeds')})"
)
HOPS = "sample_neighbor(graph, [10, 10])"
FETCHED = {
    "untyped": (NODES, f"items.{HOPS}.fetch_feature(store, ['x'])"),
    "typed": (TYPED, f"items.{HOPS}.fetch_feature(store, dict.fromkeys('ab', ['x']))"),
}
"""Graph with seeds, and pipeline."""
PARTS = ("import torch", "import graphfeed", "make the graph", "first mini-batch", "second mini-batch")
GOAL_SECONDS = 0.25
ROUNDS = 9
"""Maximum number of rounds: each is a process."""


class Start(NamedTuple):
    """Measurements of one process."""

    marks: list[float]
    """Processor times at which the parts began and ended."""
    loading: float
    """Seconds of loading or compiling kernels."""
    waited: float
    """Seconds from the written pipeline to its first mini-batch."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for a graph without types, and one for a graph with types."""
    for kind, pipeline in FETCHED.items():
        yield render(f"first use: a fresh process, {kind} graph of 20,000 edges", measure(pipeline, scale))


def measure(pipeline: tuple[str, str], scale: Scale) -> list[Row]:
    """Return the seconds of each part, and of all parts after the imports of torch and graphfeed."""
    start_process(pipeline)  # compiles kernels that are not on disk
    found = [start_process(pipeline) for _ in range(min(scale.repeats, ROUNDS))]
    spans = [[after - before for before, after in pairwise(own.marks)] for own in found]
    rows = [Row(part, "s", Times([own[place] for own in spans])) for place, part in enumerate(PARTS)]
    rows.append(Row("of this, loading kernels", "s", Times([own.loading for own in found])))
    total = Times([sum(own[2:4]) for own in spans])
    rows.append(Row("first mini-batch after import", "s", total, goal=Goal(total.median, GOAL_SECONDS)))
    return rows


def start_process(pipeline: tuple[str, str], settings: dict[str, str] | None = None) -> Start:
    """Measure in a new process, with additional environment variables."""
    command = [sys.executable, "-c", PROGRAM, *pipeline]
    environment = os.environ | (settings or {})
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=600)
    return Start(*json.loads(done.stdout))
