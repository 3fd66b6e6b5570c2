"""Edges of a Parquet file to a data set, against NumPy's own argsort, and against reading and writing the bytes.

Edges that name nodes by texts are compared with DuckDB, if it is installed.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.memory import in_new_process, memory
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, Times, in_turn
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset

MOST_ROUNDS = 5
DEGREE = 10
BUDGETS = (1 << 30, 1 << 26)
TIMES_DUCKDB = 1.2
"""How much of DuckDB's CPU time text ids may take."""
OURS, DUCKDB = "graphfeed.ingest", "DuckDB"


def tables(scale: Scale) -> Iterator[str]:
    """Yield a table of rates, and one of memory."""
    edges = scale.products.num_edges // 6
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_edges(folder / "edges.parquet", edges)
        cases: dict[str, Case] = {
            "read the file, write the result": lambda _: copy_bytes(folder),
            OURS: lambda _: build(folder, BUDGETS[0]),
            "NumPy: argsort": lambda _: by_argsort(folder),
        }
        build(folder, BUDGETS[0])
        times = in_turn(cases, min(scale.repeats, MOST_ROUNDS))
        own = times[OURS]
        rows = [
            Row(name, "M edges/s", Times([edges / 1e6 / value for value in single.values]), single.over(own))
            for name, single in times.items()
        ]
        yield render(f"{edges / 1e6:.1f} M edges of Parquet to CSC on disk, CPU time; ratio to graphfeed.ingest", rows)
        yield render(f"{edges / 1e6:.1f} M edges with text ids; ratio to {OURS}", with_texts(folder, edges, scale))
        build(folder, BUDGETS[0])
        result = size_of(folder / "out")
        rows = []
        for name, budget in [
            *((f"{OURS}, memory={budget >> 20} MiB", budget) for budget in BUDGETS),
            ("NumPy", 0),
        ]:
            peak = in_new_process(measure_peak, folder, budget)
            rows.append(Row(name, "MB", Times([peak / 1e6]), peak / result))
        yield render(f"peak memory beyond the imports; ratio to the result's {result / 1e6:.0f} MB", rows)


def with_texts(folder: Path, edges: int, scale: Scale) -> list[Row]:
    """Return the CPU time that text ids take."""
    pairs = pq.read_table(folder / "edges.parquet")
    names = pa.array([f"user-{number * 7919:012d}" for number in range(num_nodes(folder))])
    pq.write_table(pa.table({name: names.take(pairs[name].combine_chunks()) for name in pairs.column_names}),
                   folder / "texts.parquet", row_group_size=1 << 20)  # fmt: skip
    spec = Spec({"e": EdgeTable("texts.parquet")}, folder=folder)
    cases: dict[str, Case] = {OURS: lambda _: build_from(spec, folder, BUDGETS[0])}
    with suppress(ImportError):
        cases[DUCKDB] = by_duckdb(folder)
    cases[OURS](0)
    times = in_turn(cases, min(scale.repeats, MOST_ROUNDS))
    own = times[OURS]
    goal = Goal(own.over(times[DUCKDB]), TIMES_DUCKDB) if DUCKDB in times else None
    return [
        Row(name, "M edges/s", Times([edges / 1e6 / value for value in single.values]), single.over(own),
            goal if name == OURS else None)
        for name, single in times.items()
    ]  # fmt: skip


def by_duckdb(folder: Path) -> Case:
    """Return what numbers the texts of the file's edges by DuckDB, and sorts the edges."""
    duckdb: Any = import_module("duckdb")
    file, ends = folder / "texts.parquet", "select source as id from edges union select destination from edges"
    number = f"create table nodes as select id, row_number() over (order by id) - 1 as node from ({ends})"
    join = "edges join nodes s on source = s.id join nodes d on destination = d.id"

    def run(_: int) -> None:
        with duckdb.connect() as database:
            database.execute(f"create view edges as from '{file}'")
            database.execute(number)
            found = database.execute(f"select s.node s, d.node d from {join} order by d").fetchnumpy()
            np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(np.bincount(found["d"]))]))
            np.save(folder / "indices.npy", found["s"])

    return run


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
    nodes = {"n": NodeTable(count=num_nodes(folder))}
    build_from(Spec({"e": EdgeTable("edges.parquet")}, nodes, folder=folder), folder, budget)


def build_from(spec: Spec, folder: Path, budget: int) -> None:
    """Make a data set of a specification."""
    shutil.rmtree(folder / "out", ignore_errors=True)
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
