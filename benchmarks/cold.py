"""From the written pipeline to its first mini-batch, without compiled kernels on disk and then with them.

This is wall-clock time. Each time, one process begins with an empty folder of machine code, and the next one loads the
machine code that the first one has saved.
"""

import tempfile
from collections.abc import Iterator

from llvmlite import binding

from benchmarks.first_use import HOPS, NODES, TYPED, start_process
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import Times

WEIGHTED = "gf.from_coo(ends, 1000, edge_attributes={'w': torch.rand(20_000)}), gf.ItemSet(1000, names='seeds')"
LINKS = "gf.from_coo(ends, 1000), gf.ItemSet(torch.stack(ends, dim=1), names='seeds')"
LABOR = "sample_layer_neighbor(graph, [10, 10])"
SAMPLED = {
    "uniform": (NODES, f"items.{HOPS}"),
    "weighted": (WEIGHTED, "items.sample_neighbor(graph, [10, 10], prob_name='w')"),
    "links with negatives": (LINKS, f"items.sample_uniform_negative(graph, 1).{HOPS}"),
    "LABOR": (NODES, f"items.{LABOR}"),
    "typed": (TYPED, f"items.{HOPS}"),
    "typed, LABOR": (TYPED, f"items.{LABOR}"),
}
"""Graph with seeds, and pipeline."""
ROUNDS = 5
"""Maximum number of rounds, because compiling takes seconds."""


def report(scale: Scale) -> Iterator[str]:
    """Yield the table."""
    yield render("cold: until the first mini-batch; ratio to kernels on disk", waits(scale))


def waits(scale: Scale) -> list[Row]:
    """Return the seconds until the first mini-batch of each pipeline, without kernels on disk and then with them."""
    rows = []
    rounds = min(scale.repeats, ROUNDS)
    for name, pipeline in list(SAMPLED.items())[: scale.compiled_pipelines]:
        cold, warm = (Times(own) for own in zip(*(start_twice(pipeline) for _ in range(rounds)), strict=True))
        rows += [Row(f"{name}, nothing on disk", "s", cold, cold.over(warm))]
        rows += [Row(f"{name}, kernels on disk", "s", warm, 1.0)]
    return rows


def start_twice(pipeline: tuple[str, str]) -> tuple[float, float]:
    """Return the waiting times of two processes, of which the first one began without any kernel on disk."""
    # The features are part of the names of files: written twice, they are the same, and no other folder has that name.
    features = binding.get_host_cpu_features().flatten()
    settings = {"GRAPHFEED_KERNELS": "compile", "NUMBA_CPU_FEATURES": f"{features},{features}"}
    with tempfile.TemporaryDirectory() as folder:
        first, second = (start_process(pipeline, settings | {"GRAPHFEED_CACHE_DIR": folder}) for _ in range(2))
    return first.waited, second.waited
