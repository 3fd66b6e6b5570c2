"""Data sets of random tables, and digests of the results, which do not change between releases."""

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.kinds.example_tables import write

FORMATS = [".parquet", ".csv", ".tsv", ".ndjson", ".arrow", ".npz", ".tfrecord", "arrays", "table"]
TEXTS = (".csv", ".tsv")
DENSE = (".npz", ".tfrecord", "arrays")
"""Formats without missing values."""


class RandomTables:
    """Generates the tables for a number."""

    def __init__(self, number: int, folder: Path) -> None:
        self.chance, self.folder, self.number = random.Random(number), folder, number
        self.wrong = self.chance.random() < 0.4

    def happens(self, share: float) -> bool:
        return self.chance.random() < share

    def values(self, kind: str, count: int) -> list[Any]:
        """Return values of a column."""
        choices: dict[str, Any] = {
            "int": lambda: self.chance.randrange(-5, 50),
            "float": lambda: self.chance.choice([0.5, 1.25, -3.5, 1e10]) * self.chance.randrange(1, 5),
            "bool": lambda: self.chance.randrange(2) == 1,
            "text": lambda: self.chance.choice(["a", "b b", "ü", "c,d", 'q"', "zz"]),
            "vector": lambda: [self.chance.randrange(9) * 0.5 for _ in range(3)],
            "weight": lambda: self.chance.randrange(9) * 0.25,
            "time": lambda: self.chance.randrange(1_000_000),
            "part": lambda: self.chance.choice(["train", "validation", "test", "x"]),
        }
        return [choices[kind]() for _ in range(count)]

    def files(self, name: str, columns: dict[str, list[Any]], suffix: str) -> list[Any]:
        """Write columns to several tables, none of which is empty."""
        rows = len(next(iter(columns.values())))
        cuts = sorted(self.chance.sample(range(1, rows), min(self.chance.randrange(3), rows - 1)))
        tables: list[Any] = []
        for place, (low, high) in enumerate(zip([0, *cuts], [*cuts, rows], strict=True)):
            own = {key: values[low:high] for key, values in columns.items()}
            if suffix == "arrays":
                tables.append({key: np.array(values) for key, values in own.items()})
            else:
                path = self.folder / f"{name}_{place}{suffix}"
                tables.append(pa.table(own) if suffix == "table" else write(path, own).name)
        return tables

    def nodes(self, name: str, timed: bool) -> tuple[NodeTable | None, list[Any]]:
        """Return a table of nodes, if it has one, and the ids by which edges name them."""
        count, way = self.chance.randrange(2, 30), self.chance.choice(["id", "id", "row", "count", "none", "names"])
        texts = self.happens(0.5)
        ids: list[Any] = [f"{name}{i}" if texts else i * 3 - 4 for i in self.chance.sample(range(60), count)]
        if way == "none":
            return NodeTable(time=4) if timed else None, ids
        if way != "id":
            ids = list(range(count))
        if way == "count":
            return NodeTable(count=count, time=4 if timed else None), ids
        suffix, options = self.chance.choice(FORMATS), dict[str, Any]()
        columns = {"id": [f"n {i}" for i in ids] if way == "names" else list(ids)}
        options |= {way: "id"} if way in {"id", "names"} else {}
        for number in range(self.chance.randrange(3)):
            kind = self.chance.choice(["int", "float", "bool", "vector"])
            if (kind == "vector" and suffix in TEXTS) or (kind != "int" and suffix == ".tfrecord"):
                kind = "float"
            columns[f"f{number}"] = self.values(kind, count)
            options.setdefault("features", {})[f"f{number}"] = f"f{number}"
            if suffix not in DENSE and self.happens(0.3):
                columns[f"f{number}"][self.chance.randrange(count)] = None
                options["missing"] = 7
        if self.happens(0.2):
            np.save(self.folder / f"{name}.npy", np.arange(count * 2.0).reshape(count, 2))
            options.setdefault("features", {})["more"] = f"{name}.npy"
        if self.happens(0.4):
            columns["y"], options["label"] = self.values(self.chance.choice(["int", "text", "float"]), count), "y"
        if self.happens(0.3):
            columns["p"], options["split"] = ["train", *self.values("part", count - 1)], "p"
        if timed:
            columns["t"], options["time"] = self.values("time", count), "t"
        if self.wrong and way == "id":
            columns["id"][self.chance.randrange(1, count)] = columns["id"][0]
        return NodeTable(self.files(f"n{name}", columns, suffix), **options), ids

    def edges(self, number: int, ends: tuple[list[Any], list[Any]], attributes: set[str]) -> EdgeTable:
        """Return a table of edges between some nodes."""
        count, suffix, options = self.chance.randrange(2, 60), self.chance.choice(FORMATS), dict[str, Any]()
        columns = {name: self.chance.choices(own, k=count) for name, own in zip("sd", ends, strict=True)}
        for name in sorted(attributes):
            if self.happens(0.3):
                options[name] = 3
            else:
                columns[name], options[name] = self.values(name, count), name
        options |= {"time_sorted": self.wrong} if options.get("time") == "time" else {}
        if self.happens(0.3):
            columns["x"], options["features"] = self.values("float", count), {"x": "x"}
        if self.happens(0.2):
            columns["y"], options["label"] = self.values(self.chance.choice(["int", "text"]), count), "y"
        if self.wrong:
            columns["s"][0] = "nobody" if isinstance(columns["s"][0], str) else 10**6
            if "weight" in columns:
                columns["weight"][-1] = -1.0
        return EdgeTable(self.files(f"e{number}", columns, suffix), source="s", destination="d", **options)

    def spec(self) -> Spec:
        """Return a specification."""
        kinds = self.chance.choice([["e"], ["u:r:u"], ["u:r:v"], ["u:r:v", "v:q:u"], ["u:r:v", "u:s:v"]])
        ends = {kind: tuple(kind.split(":")[::2]) if ":" in kind else ("n", "n") for kind in kinds}
        timed = self.happens(0.3)
        nodes = {name: self.nodes(name, timed) for name in sorted({end for own in ends.values() for end in own})}
        attributes = {name for name in ("weight", "time") if self.happens(0.4)}
        edges = {
            kind: self.edges(number, (nodes[source][1], nodes[destination][1]), attributes)
            for number, (kind, (source, destination)) in enumerate(ends.items())
        }
        return Spec(edges, {name: own for name, (own, _) in nodes.items() if own is not None}, folder=self.folder)


def parts_of(folder: Path, dataset: Any) -> Iterator[Any]:
    """Yield the contents of a data set as plain values."""
    root = folder / "graphfeed"
    for path in sorted(root.rglob("*.npy")):
        array = np.load(path)
        yield [path.relative_to(root).as_posix(), str(array.dtype), array.shape, array.tobytes().hex()]
    known = dataset.yaml_data
    yield {name: own for name, own in known["graph_topology"].items() if name != "written"}
    yield [known[name] for name in ("tasks", "ids", "time_unit", "feature_data")]
    yield [[own["reason"], own["rows"], own["first"]] for own in known["skipped"]]


def digest(number: int, folder: Path) -> str:
    """Build the data set for a number, and return a digest of its contents, or the kind of error."""
    tables = RandomTables(number, folder)
    spec = tables.spec()
    try:
        dataset = build_dataset(spec, folder / "out", on_error="skip" if tables.wrong else "raise")
    except (TypeError, ValueError) as error:
        return type(error).__name__
    text = json.dumps(list(parts_of(folder / "out", dataset)), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
