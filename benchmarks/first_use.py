"""A fresh process until its first mini-batch of a small graph, part by part, with compiled kernels on disk.

Processor time, so that other processes on the machine don't count. The machine code of a kernel is read, checked and
linked when the kernel is first called; "of this" is the sum of that, by the clock.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

PROGRAM = """
import json, sys, time
marks = [time.process_time()]
mark = lambda: marks.append(time.process_time())
import torch
mark()
import graphfeed as gf
mark()
import numba
from graphfeed.ops.cpu.kernel_cache import watch_kernels
loads = []
with watch_kernels(loads.append):
    mark()
    ends = torch.arange(20_000) % 997, torch.arange(20_000) % 1000
    if sys.argv[1] == "typed":
        graph = gf.from_coo({"a:to:b": ends, "b:to:a": ends}, {"a": 1000, "b": 1000})
        seeds = gf.HeteroItemSet({"a": gf.ItemSet(1000, names="seeds")})
        names = {"a": ["x"], "b": ["x"]}
    else:
        graph, seeds, names = gf.from_coo(ends, 1000), gf.ItemSet(1000, names="seeds"), ["x"]
    mark()
    rows = gf.TorchBasedFeature(torch.rand(1000, 64))
    store = gf.BasicFeatureStore({("node", kind, "x"): rows for kind in (None, "a", "b")})
    pipe = gf.ItemSampler(seeds, batch_size=64, shuffle=True).sample_neighbor(graph, [10, 10])
    loader = gf.DataLoader(pipe.fetch_feature(store, names), num_workers=0, seed=0)
    batches = iter(loader)
    next(batches)
    mark()
    next(batches)
    mark()
print(json.dumps([marks, sum(kernel.seconds for kernel in loads)]))
"""
PARTS = ("import torch", "import graphfeed", "import numba", "make the graph", "first mini-batch", "second mini-batch")
GOAL_SECONDS = 1.5
ROUNDS = 9
"""At most: each is a process."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for a graph without types, and one for a graph with types."""
    for kind in ("untyped", "typed"):
        yield render(f"first use: a fresh process, {kind} graph of 20,000 edges", measure(kind, scale))


def measure(kind: str, scale: Scale) -> list[Row]:
    """Return the seconds of each part, and of all that come after the imports of torch and graphfeed."""
    start_process(kind)  # compiles what is not on disk
    found = [start_process(kind) for _ in range(min(scale.repeats, ROUNDS))]
    spans = [[after - before for before, after in pairwise(marks)] for marks, _ in found]
    rows = [Row(part, "s", Times([own[place] for own in spans])) for place, part in enumerate(PARTS)]
    rows.append(Row("of this, loading kernels", "s", Times([seconds for _, seconds in found])))
    total = Times([sum(own[2:5]) for own in spans])
    rows.append(Row("first mini-batch after import", "s", total, goal=Goal(total.median, GOAL_SECONDS)))
    return rows


def start_process(kind: str) -> tuple[list[float], float]:
    """Return the times at which the parts of a fresh process ended, and how long it loaded kernels."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind], stdout=subprocess.PIPE, check=True, timeout=600)
    marks, seconds = json.loads(done.stdout)
    return marks, seconds
