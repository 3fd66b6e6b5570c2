"""Building a data set from files of edges, relative to bare DuckDB, NumPy's argsort, and copying the bytes."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.memory import in_new_process, memory
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, Times, in_turn
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset

MOST_ROUNDS = 5
DEGREE = 10
BUDGETS = (1 << 30, 1 << 26)
TIMES_DUCKDB = {"integers": 1.2, "strings": 1.15, "csv": 2.0, "files": 2.0}
"""Maximum CPU time of each case relative to bare DuckDB."""
MOST_FILES = 1000
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
            DUCKDB: lambda _: by_duckdb(folder),
        }
        build(folder, BUDGETS[0])
        times = in_turn(cases, min(scale.repeats, MOST_ROUNDS))
        rows = rows_of(times, edges, "integers")
        yield render(f"{edges / 1e6:.1f} M edges of Parquet to CSC on disk, CPU time; ratio to {OURS}", rows)
        rows = rows_of(with_texts(folder, scale), edges, "strings")
        yield render(f"{edges / 1e6:.1f} M edges with text ids; ratio to {OURS}", rows)
        rows = rows_of(with_csv(folder, scale), edges, "csv")
        yield render(f"{edges / 1e6:.1f} M edges of CSV, with weights and times; ratio to {OURS}", rows)
        rows = rows_of(with_files(folder, edges, scale), edges, "files")
        yield render(f"{edges / 1e6:.1f} M edges in {MOST_FILES} files; ratio to {OURS}", rows)
        build(folder, BUDGETS[0])
        result = size_of(folder / "out")
        rows = []
        for name, budget in [*((f"{OURS}, memory={budget >> 20} MiB", budget) for budget in BUDGETS), ("NumPy", 0)]:
            peak = in_new_process(measure_peak, folder, budget)
            rows.append(Row(name, "MB", Times([peak / 1e6]), peak / result))
        yield render(f"peak memory beyond the imports; ratio to the result's {result / 1e6:.0f} MB", rows)


def rows_of(times: dict[str, Times], edges: int, kind: str) -> list[Row]:
    """Return the rates of cases, and whether graphfeed stays within its limit relative to DuckDB."""
    own = times[OURS]
    goal = Goal(own.over(times[DUCKDB]), TIMES_DUCKDB[kind])
    return [
        Row(name, "M edges/s", Times([edges / 1e6 / value for value in single.values]), single.over(own),
            goal if name == OURS else None)
        for name, single in times.items()
    ]  # fmt: skip


def with_texts(folder: Path, scale: Scale) -> dict[str, Times]:
    """Return the CPU time for string ids."""
    pairs = pq.read_table(folder / "edges.parquet")
    names = pa.array([f"user-{number * 7919:012d}" for number in range(num_nodes(folder))])
    pq.write_table(pa.table({name: names.take(pairs[name].combine_chunks()) for name in pairs.column_names}),
                   folder / "strings.parquet", row_group_size=1 << 20)  # fmt: skip
    return against(Spec({"e": EdgeTable("strings.parquet")}, folder=folder), texts_by_duckdb, scale)


def with_csv(folder: Path, scale: Scale) -> dict[str, Times]:
    """Return the CPU time for a CSV file with weights and times."""
    pairs = pq.read_table(folder / "edges.parquet")
    seconds = pa.array(np.arange(len(pairs)) % 10**8 + 10**9).cast(pa.timestamp("s"))
    weights = pa.array(np.arange(len(pairs)) % 1000 / 8)
    pa.csv.write_csv(pairs.append_column("weight", weights).append_column("time", seconds), folder / "edges.csv")
    edges, nodes = EdgeTable("edges.csv", weight="weight", time="time"), NodeTable(count=num_nodes(folder))
    return against(Spec({"e": edges}, {"n": nodes}, folder=folder), csv_by_duckdb, scale)


def with_files(folder: Path, edges: int, scale: Scale) -> dict[str, Times]:
    """Return the CPU time for many small files, and for a scan of them."""
    (folder / "small").mkdir()
    pairs = pq.read_table(folder / "edges.parquet")
    size = -(-edges // MOST_FILES)
    for number in range(MOST_FILES):
        pq.write_table(pairs.slice(number * size, size), folder / "small" / f"{number:05d}.parquet")
    spec = Spec({"e": EdgeTable("small/*.parquet")}, {"n": NodeTable(count=num_nodes(folder))}, folder=folder)
    return against(spec, scan_by_duckdb, scale)


def against(spec: Spec, theirs: Callable[[Path], None], scale: Scale) -> dict[str, Times]:
    """Return the CPU time of a specification, and of DuckDB for the same files."""
    cases: dict[str, Case] = {
        OURS: lambda _: build_from(spec, spec.folder, BUDGETS[0]),
        DUCKDB: lambda _: theirs(spec.folder),
    }
    return in_turn(cases, min(scale.repeats, MOST_ROUNDS))


def by_duckdb(folder: Path) -> None:
    """Sort the file's edges with DuckDB only."""
    query = f"SELECT source, destination FROM '{folder}/edges.parquet' ORDER BY destination, file_row_number"
    with duckdb.connect(str(folder / "bare.duckdb")) as database:
        write_found(folder, database.sql(query).fetchnumpy())


def texts_by_duckdb(folder: Path) -> None:
    """Number the string ids of the file's edges with DuckDB only, and sort the edges."""
    edges = f"read_parquet('{folder}/strings.parquet')"
    ends = f"SELECT source AS id FROM {edges} UNION SELECT destination FROM {edges}"
    join = f"{edges} JOIN nodes s ON source = s.id JOIN nodes d ON destination = d.id"
    found = f"SELECT s.node AS source, d.node AS destination FROM {join} ORDER BY d.node, file_row_number"
    with duckdb.connect(str(folder / "bare.duckdb")) as database:
        database.execute(
            f"CREATE OR REPLACE TABLE nodes AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS node FROM ({ends})"
        )
        write_found(folder, database.sql(found).fetchnumpy())


def csv_by_duckdb(folder: Path) -> None:
    """Read the CSV with the types that DuckDB finds, and sort its edges."""
    query = "SELECT source, destination, weight, epoch(time) AS time FROM rows ORDER BY destination, rowid"
    with duckdb.connect(str(folder / "bare.duckdb")) as database:
        database.execute(f"CREATE OR REPLACE TABLE rows AS FROM read_csv('{folder}/edges.csv')")
        found = database.sql(query).fetchnumpy()
    write_found(folder, found)
    for name in ("weight", "time"):
        np.save(folder / f"{name}.npy", found[name])


def scan_by_duckdb(folder: Path) -> None:
    """Read all of the small files, and keep their edges."""
    with duckdb.connect(str(folder / "bare.duckdb")) as database:
        database.execute(f"CREATE OR REPLACE TABLE edges AS FROM '{folder}/small/*.parquet'")


def write_found(folder: Path, found: dict[str, Any]) -> None:
    """Write sorted edges as the columns of a graph."""
    counts = np.bincount(found["destination"], minlength=num_nodes(folder))
    np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(counts)]))
    np.save(folder / "indices.npy", found["source"])


def write_edges(path: Path, count: int) -> None:
    """Write a file of random edges."""
    rng = np.random.default_rng(0)
    ends = {name: rng.integers(0, count // DEGREE, count, dtype=np.int32) for name in ("source", "destination")}
    pq.write_table(pa.table(ends), path, row_group_size=1 << 20)


def num_nodes(folder: Path) -> int:
    """Return the number of nodes of the file's edges."""
    return int(pq.read_metadata(folder / "edges.parquet").num_rows) // DEGREE


def build(folder: Path, budget: int) -> None:
    """Build a data set from the file."""
    nodes = {"n": NodeTable(count=num_nodes(folder))}
    build_from(Spec({"e": EdgeTable("edges.parquet")}, nodes, folder=folder), folder, budget)


def build_from(spec: Spec, folder: Path, budget: int) -> None:
    """Build a data set from a specification."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    build_dataset(spec, folder / "out", memory=budget, progress=False)


def by_argsort(folder: Path) -> None:
    """Build the same arrays with NumPy."""
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
    """Return the number of bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure_peak(folder: Path, budget: int) -> int:
    """Return the growth of memory while the result is built, with NumPy if `budget` is 0.

    A small result is built first, so that everything is compiled and loaded.
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
