"""Edges of a Parquet file to a data set, against NumPy's own argsort, and against reading and writing the bytes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.memory import in_new_process, memory
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import Case, Times, in_turn
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset

MOST_ROUNDS = 5
DEGREE = 10
BUDGETS = (1 << 30, 1 << 26)


def tables(scale: Scale) -> Iterator[str]:
    """Yield a table of rates, and one of memory."""
    edges = scale.products.num_edges // 6
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_edges(folder / "edges.parquet", edges)
        cases: dict[str, Case] = {
            "read the file, write the result": lambda _: copy_bytes(folder),
            "graphfeed.ingest": lambda _: build(folder, BUDGETS[0]),
            "NumPy: argsort": lambda _: by_argsort(folder),
        }
        build(folder, BUDGETS[0])
        times = in_turn(cases, min(scale.repeats, MOST_ROUNDS))
        own = times["graphfeed.ingest"]
        rows = [
            Row(name, "M edges/s", Times([edges / 1e6 / value for value in single.values]), single.over(own))
            for name, single in times.items()
        ]
        yield render(f"{edges / 1e6:.1f} M edges of Parquet to CSC on disk, CPU time; ratio to graphfeed.ingest", rows)
        result = size_of(folder / "out")
        rows = []
        for name, budget in [
            *((f"graphfeed.ingest, memory={budget >> 20} MiB", budget) for budget in BUDGETS),
            ("NumPy", 0),
        ]:
            peak = in_new_process(measure_peak, folder, budget)
            rows.append(Row(name, "MB", Times([peak / 1e6]), peak / result))
        yield render(f"peak memory beyond the imports; ratio to the result's {result / 1e6:.0f} MB", rows)


def write_edges(path: Path, count: int) -> None:
    """Write a file of random edges."""
    rng = np.random.default_rng(0)
    ends = {name: rng.integers(0, count // DEGREE, count, dtype=np.int32) for name in ("source", "destination")}
    pq.write_table(pa.table(ends), path, row_group_size=1 << 20)


def num_nodes(folder: Path) -> int:
    """Return the number of nodes of the file's edges."""
    return int(pq.read_metadata(folder / "edges.parquet").num_rows) // DEGREE


def build(folder: Path, budget: int) -> None:
    """Make a data set of the file."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    spec = Spec({"e": EdgeTable("edges.parquet")}, {"n": NodeTable(count=num_nodes(folder))}, folder=folder)
    build_dataset(spec, folder / "out", memory=budget, progress=False)


def by_argsort(folder: Path) -> None:
    """Make the same arrays as one does with NumPy."""
    table = pq.read_table(folder / "edges.parquet")
    sources, destinations = (table[name].to_numpy() for name in ("source", "destination"))
    order = np.argsort(destinations, kind="stable")
    counts = np.bincount(destinations, minlength=num_nodes(folder))
    np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    np.save(folder / "indices.npy", sources[order])


def copy_bytes(folder: Path) -> None:
    """Read the bytes of the file, and write as many as the result has."""
    data = (folder / "edges.parquet").read_bytes()
    left = size_of(folder / "out")
    with (folder / "copy").open("wb") as file:
        while left > 0:
            left -= file.write(data[:left])


def size_of(folder: Path) -> int:
    """Return how many bytes the files of a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure_peak(folder: Path, budget: int) -> int:
    """Return by how much memory grows while the result is made, by NumPy where `budget` is 0.

    A small one is made before, for what is compiled and loaded on the first use.
    """
    with tempfile.TemporaryDirectory() as place:
        write_edges(Path(place) / "edges.parquet", 1000)
        build(Path(place), 1 << 24)
    before = memory().whole
    if budget:
        build(folder, budget)
    else:
        by_argsort(folder)
    return memory().whole - before
