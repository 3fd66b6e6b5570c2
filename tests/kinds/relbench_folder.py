"""Folders in the layout of RelBench: a shop with users, items and orders, and its tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

START = np.datetime64("2020-01-01", "ms").astype(np.int64)
DAY = 86_400_000
TEST = "2020-05-01"
TABLES: dict[str, dict[str, Any]] = {
    "users": {"pkey": "uid", "time_col": "joined", "fkeys": {}},
    "items": {"pkey": "iid", "time_col": None, "fkeys": {}},
    "orders": {"pkey": None, "time_col": "at", "fkeys": {"user": "users", "item": "items"}},
}
SPENT = {
    "name": "spent", "kind": "forecast", "task_type": "regression", "entity_table": "users", "entity_col": "user",
    "target_col": "amount", "time_col": "date", "timedelta": "30 days", "remove_columns": [["orders", "note"]],
    "sql": "SELECT",
}  # fmt: skip
BOUGHT = {
    "name": "bought", "kind": "forecast", "task_type": "recommendation", "src_entity_table": "users", "eval_k": 3,
    "src_entity_col": "user", "dst_entity_table": "items", "dst_entity_col": "items", "time_col": "date",
    "timedelta": "30 days", "sql": "SELECT",
}  # fmt: skip
GRADE = {"name": "grade", "kind": "autocomplete", "task_type": "multiclass_classification", "entity_table": "users",
         "target_col": "grade"}  # fmt: skip


def write_table(path: Path, columns: dict[str, Any], unit: str = "us") -> None:
    """Write columns as Parquet; those of whole milliseconds, given as `datetime64`, get the unit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: own if isinstance(own, pa.Array) else pa.array(own) for name, own in columns.items()}
    pq.write_table(pa.table({name: own.cast(pa.timestamp(unit)) if pa.types.is_timestamp(own.type) else own
                             for name, own in arrays.items()}), path)  # fmt: skip


def times(days: Any, missing: Any = False) -> pa.Array:
    """Return days after the start as times with fractions of a second."""
    found = START + (np.asarray(days) * DAY).astype(np.int64)
    return pa.array(found, pa.timestamp("ms"), mask=np.broadcast_to(missing, found.shape))


def write_shop(folder: Path, unit: str = "us", seed: int = 0, users: int = 30, orders: int = 300) -> dict[str, Any]:
    """Write the folder, and return the columns of its tables as Arrow arrays; a fifth of the rows are after the cut."""
    rng = np.random.default_rng(seed)
    items, tables = users // 2, dict[str, dict[str, Any]]()
    tables["users"] = {
        "uid": np.arange(users), "joined": times(np.sort(rng.uniform(0, 150, users))),
        "age": pa.array(rng.integers(18, 90, users), mask=rng.random(users) < 0.2),
        "town": [("Bonn", "Köln", None)[number] for number in rng.integers(0, 3, users)],
        "grade": rng.integers(0, 4, users),
    }  # fmt: skip
    tables["items"] = {"iid": np.arange(items), "price": rng.random(items)}
    tables["orders"] = {
        "user": pa.array(rng.integers(0, users, orders), mask=rng.random(orders) < 0.1),
        "item": pa.array(rng.integers(0, items, orders), mask=rng.random(orders) < 0.1),
        "at": times(rng.uniform(0, 150, orders), rng.random(orders) < 0.05),
        "count": rng.integers(1, 9, orders), "note": [f"n{number % 7}" for number in range(orders)],
    }  # fmt: skip
    for name, columns in tables.items():
        write_table(folder / "db" / f"{name}.parquet", columns, unit)
    manifest = {"name": "rel-shop", "manifest_version": 1, "val_timestamp": "2020-04-01", "test_timestamp": TEST}
    write_yaml(folder / "manifest.yaml", manifest | {"tables": TABLES})
    early = int((tables["users"]["joined"].cast(pa.int64()).to_numpy() <= START + 121 * DAY).sum())
    for part, day, count in (("train", 61, 40), ("val", 91, 12), ("test", 121, 12)):
        rows: dict[str, Any] = {"date": times(day - rng.integers(0, 2, count)), "user": rng.integers(0, early, count)}
        write_table(folder / f"tasks/spent/{part}.parquet", rows | {"amount": rng.integers(-5, 90, count)}, unit)
        lists = [rng.choice(items, size, replace=False) for size in rng.integers(0 if part == "train" else 1, 5, count)]
        write_table(folder / f"tasks/bought/{part}.parquet", rows | {"items": pa.array(map(list, lists))}, unit)
        grades = {"uid": rows["user"], "joined": rows["date"], "grade": tables["users"]["grade"][rows["user"]]}
        write_table(folder / f"tasks/grade/{part}.parquet", grades, unit)
    for task in (SPENT, BOUGHT, GRADE):
        write_yaml(folder / f"tasks/{task['name']}/manifest.yaml", task)
    return tables


def write_yaml(path: Path, data: Any) -> None:
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
