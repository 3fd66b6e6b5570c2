"""A program that damages files of one kind repeatedly, and reports the results of reading them.

It runs in a separate process, because a library that reads a damaged file may end the process.

    python -m tests.ingest.damage KIND,KIND,... FIRST COUNT FOLDER
"""

import contextlib
import copy
import functools
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import graphfeed as gf
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset, inspect_dataset, read_spec
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import bounded_yaml, metadata
from tests.ingest.example_tables import new_engine, rows_of, write

EDGES = {"source": [n * 7 % 40 for n in range(60)], "destination": [n * 3 % 40 for n in range(60)], "x": [0.5] * 60}
NODES = {"name": [f"node {n}" for n in range(40)], "y": [n % 3 for n in range(40)]}
SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow", "csv": ".csv", "npz": ".npz", "ndjson": ".ndjson"}
SUFFIXES |= {"tfrecord": ".tfrecord", "compressed tfrecord": ".tfrecord.gz"}
KINDS = [*SUFFIXES, "spec", "metadata"]
"""Kinds for which whole data sets are built, which takes some ten milliseconds each time."""
CHEAP = ["read parquet", "read csv", "read ndjson", "read pt", "read metadata"]
"""Kinds for which one file is read, which takes a millisecond or two."""
ENDS = ("source", "destination")
GRAPHBOLT = Path(__file__).parents[1] / "storage" / "graph" / "files" / "graphbolt" / "typed.pt"


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return data that was truncated, or in which bits, bytes or whole ranges were changed."""
    changed = bytearray(data)
    place, size = chance.randrange(len(data)), chance.randrange(1, 40)
    way = chance.randrange(6)
    if way == 0:
        return data[:place]
    if way == 1:
        changed[place : place + size] = chance.randbytes(chance.randrange(40))
    elif way == 2:
        # Bytes that readers interpret as continued or as zero lengths.
        changed[place : place + size] = chance.choice([b"\xff", b"\x80", b"\x00"]) * size
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(data))
            changed[place] = chance.randrange(256) if way == 3 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)


def spec_of(folder: Path, suffix: str) -> Spec:
    """Write the tables, and return their specification."""
    write(folder / f"edges{suffix}", EDGES)
    write(folder / f"nodes{suffix}", NODES)
    edges = EdgeTable(f"edges{suffix}", features={"x": "x"})
    return Spec({"n:r:n": edges}, {"n": NodeTable(f"nodes{suffix}", label="y")}, folder=folder)


def contents(dataset: Any) -> list[Any]:
    """Return all of a data set as plain values; for other types and names, an empty list."""
    graph, tasks = dataset.graph, dataset.tasks
    items: Any = tasks[0].train_set if tasks else None
    names = ("edge", "n:r:n", "x") in dataset.feature.keys() and isinstance(items, gf.HeteroItemSet)  # noqa: SIM118
    if graph is None or not names or "n" not in items._itemsets:
        return []
    values = [graph.csc_indptr.tolist(), graph.indices.tolist(), dataset.feature.read("edge", "n:r:n", "x").tolist()]
    return [*values, [part.tolist() for part in items._itemsets["n"][:]]]


def graph_of(path: Path) -> list[Any]:
    """Return a graph that GraphBolt wrote as plain values, after checking it."""
    graph = gf.load_graph(path)
    return [graph.csc_indptr.tolist(), graph.indices.tolist()]


def graph_in(folder: Path) -> list[Any]:
    """Return the graph of a data set as plain values. Its metadata are read three times, and parsed once."""
    parsed = functools.cache(bounded_yaml.load_yaml)
    with mock.patch.object(metadata, "load_yaml", lambda path: copy.deepcopy(parsed(path))):
        graph = gf.OnDiskDataset(folder).load().graph
    return [] if graph is None else [graph.csc_indptr.tolist(), graph.indices.tolist()]


def write_one(kind: str, folder: Path) -> tuple[list[Path], Callable[[], Any]]:
    """Write a file that is fast to read, and return it with a function that reads it."""
    suffix = kind.removeprefix("read ")
    path = folder / f"edges.{suffix}"
    if suffix == "metadata":
        nodes = NodeTable(count=40)
        build_dataset(
            Spec({"e": EdgeTable({name: np.array(EDGES[name]) for name in ENDS})}, {"n": nodes}), folder / "d"
        )
        path = folder / "d" / "graphfeed" / "metadata.yaml"
        known = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({name: known[name] for name in ("layout", "graph_topology", "feature_data")}))
        return [path], lambda: graph_in(folder / "d")
    if suffix == "pt":
        shutil.copy(GRAPHBOLT, path)
        return [path], lambda: graph_of(path)
    if suffix == "parquet":
        pq.write_table(pa.table(EDGES), path, write_page_checksum=True)
    else:
        write(path, EDGES)
    engine = new_engine()  # for all reads, as a start takes longer than a read
    return [path], lambda: rows_of(TableSource(path, str(path)), list(EDGES), None, engine)


def write_all(kind: str, folder: Path) -> tuple[list[Path], Callable[[], Any]]:
    """Write the files of a data set, and return those to damage with a function that builds or opens the data set."""
    spec = spec_of(folder, SUFFIXES.get(kind, ".npz"))
    build_dataset(spec, folder / "out")
    (folder / "spec.yaml").write_text(spec.to_yaml())
    if kind in SUFFIXES:
        tables = [folder / f"{name}{SUFFIXES[kind]}" for name in ("edges", "nodes")]
        return tables, lambda: contents(build_dataset(spec))
    if kind == "spec":
        return [folder / "spec.yaml"], lambda: contents(build_dataset(read_spec(folder / "spec.yaml")))

    def open_and_inspect() -> list[Any]:
        dataset = gf.OnDiskDataset(folder / "out").load()
        inspect_dataset(folder / "out")
        return contents(dataset)

    return [folder / "out" / "graphfeed" / "metadata.yaml"], open_and_inspect


def attack(kind: str, first: int, count: int, folder: Path, tell: Callable[[str], Any] = str) -> Counter[str]:
    """Damage files, and count the results: errors, unchanged contents, and changed contents.

    Args:
        kind: One of `KINDS` or of `CHEAP`.
        first: The number of the first damage, which depends only on its number.
        count: How often to damage.
        folder: Where to write.
        tell: Called with each number before its damage, to identify one that ends the process.
    """
    targets, read = (write_one if kind in CHEAP else write_all)(kind, folder)
    return damage_and_read(kind, range(first, first + count), targets, read, tell)


def damage_and_read(
    kind: str, numbers: range, targets: list[Path], read: Callable[[], Any], tell: Callable[[str], Any]
) -> Counter[str]:
    """Damage files by each number, and count the results."""
    whole = read()
    found: Counter[str] = Counter()
    given = {target: target.read_bytes() for target in targets}
    last = targets[0]
    for number in numbers:
        chance = random.Random(f"{kind} {number}")
        target = chance.choice(targets)
        if target != last:
            last.write_bytes(given[last])
        target.write_bytes(damaged(given[target], chance))
        last = target
        tell(f"{kind} {number}\n")
        try:
            found["same" if read() == whole else "other"] += 1
        # A damaged specification or damaged metadata may name files that don't exist.
        except (ValueError, TypeError, OSError, KeyError, IndexError) as error:
            allowed = kind.endswith(("spec", "metadata")) or isinstance(error, (ValueError, TypeError))
            found["error" if allowed and len(str(error)) > 10 else f"poor error: {error!r}"] += 1
    last.write_bytes(given[last])
    return found


@contextlib.contextmanager
def in_memory(folder: Path) -> Iterator[Path]:
    """Yield a folder in memory, if the system has one, because writing to slow disks takes longer than reading."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else folder) as place:
        yield Path(place)


def tell_now(text: str) -> None:
    """Print the next number, so that it is known if the process ends."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    mock.patch("os.fsync").start()  # disks are not tested
    with contextlib.suppress(BrokenPipeError):
        for one in sys.argv[1].split(","):
            with in_memory(Path(sys.argv[4])) as place:
                for name, times in attack(one, int(sys.argv[2]), int(sys.argv[3]), place, tell_now).items():
                    tell_now(f"= {one}: {times} {name}\n")
