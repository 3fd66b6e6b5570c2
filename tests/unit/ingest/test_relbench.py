"""Folders of RelBench: the same nodes, edges, times and items as in a loop over their rows; errors that name a row."""

from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, Spec, TaskTable, build_dataset, from_relbench, read_spec
from graphfeed.storage.graph import ends_of, etype_str_to_tuple
from tests.kinds.relbench_folder import BOUGHT, GRADE, SPENT, TABLES, TEST, times, write_shop, write_table, write_yaml
from tests.stand_ins.interrupted import stop_before

BOUND = int(np.datetime64(TEST, "ms").astype(np.int64))


def kept_rows(tables: dict[str, Any]) -> dict[str, list[int]]:
    """Return the rows of each table that RelBench keeps."""
    found = {}
    for name, columns in tables.items():
        column: Any = TABLES[name]["time_col"]
        at = columns[column].cast(pa.int64()).to_pylist() if column else [0] * len(next(iter(columns.values())))
        found[name] = [row for row, time in enumerate(at) if time is not None and time <= BOUND]
    return found


def pairs_of(graph: Any, edge_type: str) -> list[tuple[int, int]]:
    """Return the edges of a type, sorted, by the numbers of their ends within their types."""
    first = dict(zip(graph.node_type_to_id, graph.node_type_offset.tolist(), strict=False))
    source, destination = ends_of(edge_type)
    columns = np.repeat(np.arange(len(graph.csc_indptr) - 1), np.diff(graph.csc_indptr.numpy()))
    own = graph.type_per_edge.numpy() == graph.edge_type_to_id[edge_type]
    rows = graph.indices.numpy()[own] - first[source]
    return sorted(zip(rows.tolist(), (columns[own] - first[destination]).tolist(), strict=True))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_graph_equals_that_of_a_loop_over_the_rows(tmp_path: Path, seed: int) -> None:
    tables = write_shop(tmp_path, seed=seed)
    spec = from_relbench(tmp_path)
    data, kept = build_dataset(spec), kept_rows(tables)
    for column, target in (("user", "users"), ("item", "items")):
        keys = tables["orders"][column].to_pylist()
        expected = [(place, keys[row]) for place, row in enumerate(kept["orders"]) if keys[row] in kept[target]]
        assert 0 < len(expected) < len(kept["orders"]) < len(keys)
        assert pairs_of(data.graph, f"orders:f2p_{column}:{target}") == expected
        turned = sorted((user, order) for order, user in expected)
        assert pairs_of(data.graph, f"{target}:rev_f2p_{column}:orders") == turned
    seconds = []
    for name in sorted(tables):
        column = TABLES[name]["time_col"]
        at = tables[name][column].cast(pa.int64()).to_pylist() if column else None
        seconds += [torch.iinfo(torch.int64).min if at is None else at[row] // 1000 for row in kept[name]]
    found = data.graph.node_attributes["time"]
    assert found[found > 0].tolist() == [own for own in seconds if own > 0]
    ages = [tables["users"]["age"][row].as_py() or 0 for row in kept["users"]]
    assert data.feature.read("node", "users", "age").flatten().tolist() == ages
    towns = data.feature[("node", "users", "town")].metadata()["categories"]
    codes = data.feature.read("node", "users", "town").flatten().tolist()
    assert [[*towns, None][code] for code in codes] == [tables["users"]["town"][row] for row in kept["users"]]


@pytest.mark.parametrize("task", [SPENT, BOUGHT, GRADE], ids=lambda task: task["name"])
def test_the_items_are_the_rows_of_the_task(tmp_path: Path, task: Any) -> None:
    write_shop(tmp_path)
    (tmp_path / "spec.yaml").write_text(from_relbench(tmp_path, task["name"]).to_yaml())
    (made,) = build_dataset(read_spec(tmp_path / "spec.yaml")).tasks
    target = task.get("target_col", "items")
    for part, file in (("train", "train"), ("validation", "val"), ("test", "test")):
        rows = pq.read_table(tmp_path / f"tasks/{task['name']}/{file}.parquet").to_pydict()
        time, node = list(rows)[:2] if task is not GRADE else ("joined", "uid")
        rows = [dict(zip(rows, own, strict=True)) for own in zip(*rows.values(), strict=True)]
        rows = [row for row in rows if part != "train" or task is not BOUGHT or row["items"]]
        items = getattr(made, f"{part}_set").by_type["users"]
        found = dict(zip(items.names, items[:], strict=True))
        assert found["seeds"].tolist() == [row[node] for row in rows]
        assert found["timestamp"].tolist() == [int(row[time].replace(tzinfo=UTC).timestamp()) for row in rows]
        assert set(found) == {"seeds", "timestamp"} | (set() if part == "test" else {named(task)})
        if part != "test" and task is BOUGHT:
            lists = [[own for own in row if own >= 0] for row in found["destinations"].tolist()]
            assert lists == [list(row["items"]) for row in rows]
        elif part != "test":
            assert found["labels"].tolist() == [row[target] for row in rows]
            assert found["labels"].dtype == (torch.float32 if task is SPENT else torch.int64)
    assert made.metadata["task_type"] == task["task_type"]


def named(task: Any) -> str:
    return "destinations" if task is BOUGHT else "labels"


def test_the_task_hides_its_columns_and_the_target_of_the_test(tmp_path: Path) -> None:
    write_shop(tmp_path)
    assert "note" in from_relbench(tmp_path, "bought").nodes["orders"].encode
    assert "note" not in from_relbench(tmp_path, "spent").nodes["orders"].encode
    assert "grade" not in from_relbench(tmp_path, "grade").nodes["users"].features
    path = tmp_path / "tasks/spent/test.parquet"
    before = build_dataset(from_relbench(tmp_path, "spent"), tmp_path / "before").yaml_data["checksums"]
    pq.write_table(pq.read_table(path).drop_columns(["amount"]), path)
    assert build_dataset(from_relbench(tmp_path, "spent"), tmp_path / "after").yaml_data["checksums"] == before


def test_units_of_time_give_the_same_bytes(tmp_path: Path) -> None:
    found = set()
    for unit in ("ms", "us", "ns"):
        write_shop(tmp_path / unit, unit)
        made = build_dataset(from_relbench(tmp_path / unit, "bought"), tmp_path / unit / "out")
        found.add(str(sorted(made.yaml_data["checksums"].items())))
    assert len(found) == 1


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_keys_may_be_floats_as_pandas_saves_them_if_some_are_missing(tmp_path: Path, missing: Any) -> None:
    tables = write_shop(tmp_path)
    before = build_dataset(from_relbench(tmp_path), tmp_path / "before").yaml_data["checksums"]
    for name, kind in (("user", pa.float64()), ("item", pa.float32())):
        keys = [missing if key is None else float(key) for key in tables["orders"][name].to_pylist()]
        tables["orders"][name] = pa.array(keys, kind)
    write_table(tmp_path / "db/orders.parquet", tables["orders"])
    assert build_dataset(from_relbench(tmp_path), tmp_path / "after").yaml_data["checksums"] == before


def test_later_rows_are_kept_if_asked_for(tmp_path: Path) -> None:
    tables = write_shop(tmp_path)
    at = tables["orders"]["at"]
    write_table(tmp_path / "db/orders.parquet", tables["orders"] | {"at": at.fill_null(at[0])})
    graph = build_dataset(from_relbench(tmp_path, upto_test_timestamp=False)).graph
    assert graph.num_nodes == {"items": 15, "orders": 300, "users": 30}


def test_nodes_behind_the_cut_are_left_out_of_a_task_and_reported(tmp_path: Path) -> None:
    write_shop(tmp_path)
    rows = {"date": times([61, 61]), "user": [29, 0], "amount": [1, 2]}
    write_table(tmp_path / "tasks/spent/train.parquet", rows)
    made: Any = build_dataset(from_relbench(tmp_path, "spent"))
    assert made.tasks[0].train_set.by_type["users"][:][0].tolist() == [0]
    (entry,) = made.yaml_data["skipped"]
    assert (entry["rows"], entry["reason"]) == (1, "the node of user was left out")


def test_one_command_builds_the_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shop(tmp_path / "shop")
    arguments = ["ingest", str(tmp_path / "shop/manifest.yaml"), str(tmp_path / "out"), "--task", "spent"]
    assert main(arguments) == 0
    assert gf.OnDiskDataset(tmp_path / "out").load().tasks[0].metadata["name"] == "spent"
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert "train_set of spent" in capsys.readouterr().out
    assert main(["ingest", "spec.yaml", str(tmp_path / "out"), "--task", "spent"]) == 1


def change_table(folder: Path, file: str, **columns: Any) -> None:
    own = pq.read_table(folder / file).to_pydict() | columns
    kinds = pq.read_schema(folder / file)
    pq.write_table(pa.table({name: own[name] if isinstance(own[name], pa.Array) else
                             pa.array(own[name], kinds.field(name).type) for name in own if own[name] is not None}),
                   folder / file)  # fmt: skip


def change_yaml(folder: Path, file: str, data: Any, **changes: Any) -> None:
    top = {"name": "rel-shop", "test_timestamp": TEST} if file == "manifest.yaml" else {}
    write_yaml(folder / file, top | data | changes)


def orders(**changes: Any) -> dict[str, Any]:
    return {"tables": TABLES | {"orders": TABLES["orders"] | changes}}


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("orders", {"user": None}, r"orders\.parquet has no column 'user', named in .*manifest\.yaml"),
        ("users", {"joined": None}, r"users\.parquet has no column 'joined'"),
        ("orders", {"user": [40] * 300}, r"orders\.parquet, row \d+: user is 40, but no row|which is out of range"),
        (
            "orders",
            {"user": pa.array([1.0, 2.5] * 150)},
            r"orders\.parquet, row 1: user is 2\.5, which is out of range",
        ),
        (
            "orders",
            {"user": pa.array([2.0**60] * 300)},
            r"orders\.parquet, row \d+: user is 1\.15\d+e\+18, which is out",
        ),
        ("orders", {"at": [str(row) for row in range(300)]}, r"orders\.parquet: at must be a time, but the column is"),
        ("users", {"uid": [*range(29), 3]}, r"users\.parquet, row \d+: uid is 3, which an earlier row already has"),
    ],
)
def test_wrong_tables_are_named_before_anything_is_written(
    tmp_path: Path, table: str, columns: Any, message: str
) -> None:
    write_shop(tmp_path / "shop")
    if "at" in columns:
        columns = {"at": pa.array(columns["at"])}
    if "uid" in columns:
        columns["joined"] = times(np.arange(30))
    change_table(tmp_path / "shop", f"db/{table}.parquet", **columns)
    with pytest.raises((TypeError, ValueError), match=message):
        build_dataset(from_relbench(tmp_path / "shop"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "columns", "message"),
    [
        ("spent/train", {"user": [99] * 40}, r"train\.parquet, row 0: user is 99"),
        ("spent/val", {"amount": None}, r"label: .*val\.parquet has no column 'amount'"),
        ("spent/test", {"date": [None] * 12}, r"test\.parquet, row 0: date is 'missing', but must be a time"),
        ("bought/val", {"items": [[1, 15]] * 12}, r"val\.parquet, row 0: items is '\[1, 15\]', but some of these ids"),
        ("bought/*", {"items": pa.array([1] * 12)}, r"train\.parquet: items must have lists of ids, but has int64"),
        ("bought/val", {"items": pa.array([["a"]] * 12)}, r"val\.parquet: items (has list|is list)"),
    ],
)
def test_wrong_rows_of_a_task_are_named(tmp_path: Path, file: str, columns: Any, message: str) -> None:
    write_shop(tmp_path)
    for part in ("train", "val") if "*" in file else (file.partition("/")[2],):
        count = pq.read_metadata(tmp_path / f"tasks/{file.partition('/')[0]}/{part}.parquet").num_rows
        own = {name: values.take([0] * count) if "*" in file else values for name, values in columns.items()}
        change_table(tmp_path, f"tasks/{file.partition('/')[0]}/{part}.parquet", **own)
    with pytest.raises((TypeError, ValueError), match=message):
        build_dataset(from_relbench(tmp_path, file.partition("/")[0]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "data", "task", "message"),
    [
        ("manifest.yaml", {"tables": {"../users": {}}}, None, "the name of a table must be a name without '/'"),
        ("manifest.yaml", {"tables": TABLES | {"gone": {}}}, None, r"there is no file .*gone\.parquet"),
        ("manifest.yaml", orders(fkeys={"user": "usrs"}), None, r"fkeys\.user names 'usrs', which is not one of"),
        ("manifest.yaml", orders(fkeys={"user": ["users"]}), None, r"fkeys\.user must be a table, but is \['users'\]"),
        ("manifest.yaml", orders(fkeys={"user": "orders"}), None, r"names 'orders', which has no pkey"),
        ("manifest.yaml", {"tables": TABLES, "test_timestamp": None}, None, "test_timestamp is missing"),
        ("manifest.yaml", {"tables": TABLES, "test_timestamp": "soon"}, None, "until must be a bound of at, which has"),
        ("tasks/spent/manifest.yaml", SPENT | {"entity_table": "user"}, "spent", "entity_table must be one of"),
        ("tasks/spent/manifest.yaml", SPENT | {"entity_table": "orders"}, "spent", "'orders' must have a pkey"),
        ("tasks/spent/manifest.yaml", SPENT | {"remove_columns": [["orders", "x"]]}, "spent", "no column 'x'"),
        ("tasks/spent/manifest.yaml", SPENT | {"remove_columns": [["order", "x"]]}, "spent", "remove_columns has"),
        ("tasks/spent/manifest.yaml", SPENT | {"remove_columns": [3]}, "spent", "remove_columns must have pairs"),
        ("tasks/spent/manifest.yaml", SPENT, "spend", "there is no task 'spend' in .* did you mean 'spent'"),
        ("tasks/spent/manifest.yaml", SPENT, "../spent", "task must be a name without '/'"),
    ],
)
def test_wrong_manifests_are_named(tmp_path: Path, file: str, data: Any, task: str | None, message: str) -> None:
    write_shop(tmp_path)
    change_yaml(tmp_path, file, data)
    with pytest.raises((OSError, TypeError, ValueError), match=message):
        build_dataset(from_relbench(tmp_path, task))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label": "y", "train": ()}, "train is missing; give the files"),
        ({}, "a task needs a label, to predict values, or destinations"),
        ({"label": "y", "destinations": "d", "destination_nodes": "b"}, "a task needs a label"),
        ({"destinations": "d"}, "destinations need destination_nodes"),
        ({"label": "y", "dtype": "int64"}, "dtype must be 'float32', but is 'int64'"),
        ({"label": 1.5}, "label must be the name of a column, but is 1.5"),
    ],
)
def test_a_task_whose_settings_contradict_is_refused(settings: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TaskTable("a", "id", **{"train": "train.parquet", **settings})
    edges = {"a:r:b": EdgeTable("edges.parquet")}
    with pytest.raises(ValueError, match=r"tasks\.t: there are no nodes of the type 'c'"):
        Spec(edges, tasks={"t": TaskTable("c", "id", "train.parquet", label="y")})


def test_a_folder_that_is_missing_needs_the_package(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*manifest\.yaml"):
        from_relbench(tmp_path)
    if find_spec("relbench") is None:
        with pytest.raises(ImportError, match=r"needs relbench, which is not installed: pip install"):
            from_relbench("rel-no-such-name")


@pytest.mark.filterwarnings("ignore")
def test_the_graph_is_that_of_the_package(tmp_path: Path) -> None:
    load, modeling = pytest.importorskip("relbench.load"), pytest.importorskip("relbench.modeling.graph")
    frame = pytest.importorskip("torch_frame")
    write_shop(tmp_path)
    database = load.load_dataset(tmp_path).get_db()
    columns = {"users": "age", "items": "price", "orders": "count"}
    stypes = {name: {column: frame.numerical} for name, column in columns.items()}
    expected, _ = modeling.make_pkey_fkey_graph(database, stypes)
    graph = build_dataset(from_relbench(tmp_path)).graph
    assert sorted(map(etype_str_to_tuple, graph.edge_types)) == sorted(expected.edge_types)
    for edge_type in expected.edge_types:
        assert pairs_of(graph, ":".join(edge_type)) == sorted(map(tuple, expected[edge_type].edge_index.t().tolist()))


@pytest.mark.parametrize("step", ["node_1", "edge_2", "task_0", "sort"])
def test_an_interrupted_run_gives_the_same_bytes(tmp_path: Path, step: str) -> None:
    write_shop(tmp_path)
    spec = from_relbench(tmp_path, "bought")
    stop_before(spec, tmp_path / "out", step)
    resumed = build_dataset(spec, tmp_path / "out").yaml_data["checksums"]
    assert resumed == build_dataset(spec, tmp_path / "anew").yaml_data["checksums"]
