"""Tables of nodes that refer to others: sources that are rows, optional destinations, times behind a bound."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset, read_spec

START = datetime(1969, 12, 30)
UNTIL = "1970-01-20 12:00:00"


def moments(rng: np.random.Generator, count: int, missing: float) -> list[datetime | None]:
    """Return times on both sides of 1970, with fractions of a second, some of them missing."""
    seconds = rng.uniform(0, 40 * 86_400, count)
    return [None if rng.random() < missing else START + timedelta(milliseconds=int(1000 * own)) for own in seconds]


def rows_of(seed: int, texts: bool) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    rng = np.random.default_rng(seed)
    names = [f"u{number}" if texts else number * 3 for number in rng.permutation(30).tolist()]
    users: dict[str, list[Any]] = {"id": names, "joined": moments(rng, 30, 0.1)}
    chosen = [None if rng.random() < 0.2 else names[number] for number in rng.integers(0, 30, 200)]
    return users, {"user": chosen, "at": moments(rng, 200, 0.1)}


def write(folder: Path, name: str, columns: dict[str, list[Any]], unit: str) -> None:
    texts = any(isinstance(value, str) for value in [*columns.get("id", ()), *columns.get("user", ())])
    kinds = {name: pa.timestamp(unit) if name in ("joined", "at") else pa.string() if texts else pa.int64()
             for name in columns}  # fmt: skip
    pq.write_table(pa.table({key: pa.array(own, kinds[key]) for key, own in columns.items()}), folder / name)


def spec_of(folder: Path) -> Spec:
    orders: dict[str, Any] = {"files": "orders.parquet", "until": {"at": UNTIL}}
    edges = {
        "order:of:user": EdgeTable(**orders, destination="user", source_is_row=True, optional=True),
        "user:made:order": EdgeTable(reverse_of="order:of:user"),
    }
    users = NodeTable("users.parquet", id="id", time="joined", until={"joined": UNTIL})
    return Spec(edges, {"order": NodeTable(**orders, time="at"), "user": users}, folder=folder, time_unit="s")


@pytest.mark.parametrize(("seed", "texts"), [(0, False), (1, True)])
def test_rows_refer_to_rows_as_in_a_loop(tmp_path: Path, seed: int, texts: bool) -> None:
    users, orders = rows_of(seed, texts)
    write(tmp_path, "users.parquet", users, "ms")
    write(tmp_path, "orders.parquet", orders, "ms")
    spec = spec_of(tmp_path)
    (tmp_path / "spec.yaml").write_text(spec.to_yaml())
    assert read_spec(tmp_path / "spec.yaml").edges == spec.edges
    data = build_dataset(tmp_path / "spec.yaml")
    bound = datetime.fromisoformat(UNTIL)
    kept = [name for name, at in zip(users["id"], users["joined"], strict=True) if at is not None and at <= bound]
    rows = [(name, at) for name, at in zip(*orders.values(), strict=True) if at is not None and at <= bound]
    expected = {(row, kept.index(name)) for row, (name, _) in enumerate(rows) if name in kept}
    assert 0 < len(kept) < len(users["id"])
    assert 0 < len(expected) < len(rows) < len(orders["at"])
    graph = data.graph
    assert graph.node_type_offset.tolist() == [0, len(rows), len(rows) + len(kept)]
    ends = np.repeat(np.arange(len(rows) + len(kept)), np.diff(graph.csc_indptr.numpy()))
    pairs = set(zip(graph.indices.tolist(), ends.tolist(), strict=True))
    there = {(row, len(rows) + user) for row, user in expected}
    assert pairs == there | {(user, row) for row, user in there}
    times = [at for _, at in rows] + [at for name, at in zip(*users.values(), strict=True) if name in kept]
    seconds = [(at - datetime(1970, 1, 1)) // timedelta(seconds=1) for at in times]
    assert graph.node_attributes["time"].tolist() == seconds
    assert data.yaml_data["time_unit"] == "s"
    assert min(seconds) < 0 < max(seconds)


def test_rows_after_an_invalid_node_that_is_skipped_keep_their_edges(tmp_path: Path) -> None:
    early, late = datetime(1970, 1, 2), datetime(1970, 3, 1)
    items: dict[str, list[Any]] = {"id": [10, 11, 10, 12, 11, 13, 14], "user": [0, 1, 3, 2, 0, 9, 3], "at": [early] * 7}
    items["at"][1] = late
    write(tmp_path, "items.parquet", items, "us")
    write(tmp_path, "users.parquet", {"id": [0, 1, 2, 3]}, "us")
    table: dict[str, Any] = {"files": "items.parquet", "until": {"at": UNTIL}}
    edges = {"item:by:user": EdgeTable(**table, destination="user", source_is_row=True)}
    nodes = {"item": NodeTable(**table, id="id"), "user": NodeTable("users.parquet", id="id")}
    data = build_dataset(Spec(edges, nodes, folder=tmp_path), on_error="skip")
    # The items are 10, 12, 11, 13 and 14: row 1 is late, row 2 has an id again, and row 5 has no user.
    assert data.graph.node_type_offset.tolist() == [0, 5, 9]
    ends = np.repeat(np.arange(9), np.diff(data.graph.csc_indptr.numpy())) - 5
    assert set(zip(data.graph.indices.tolist(), ends.tolist(), strict=True)) == {(0, 0), (1, 2), (2, 0), (4, 3)}


def test_times_of_any_unit_give_the_same_bytes(tmp_path: Path) -> None:
    found = set()
    for unit in ("ms", "us", "ns"):
        folder = tmp_path / unit
        folder.mkdir()
        for name, columns in zip(("users.parquet", "orders.parquet"), rows_of(3, False), strict=True):
            write(folder, name, columns, unit)
        found.add(str(sorted(build_dataset(spec_of(folder), folder / "out").yaml_data["checksums"].items())))
    assert len(found) == 1


def test_wrong_rows_are_named_by_table_column_and_row(tmp_path: Path) -> None:
    users, orders = rows_of(4, False)
    cases: list[Any] = [
        ("user", 7, 1, "orders.parquet, row 7: user is 1, but no row of the nodes has that id"),
        ("id", 3, users["id"][1], rf"users.parquet, row 3: id is {users['id'][1]}, which an earlier row already has"),
    ]
    early = datetime(1970, 1, 2)
    for column, row, value, message in cases:
        changed = [{key: list(own) for key, own in table.items()} for table in (users, orders)]
        changed[0]["joined"] = [early] * 30
        changed[1]["at"] = [early] * 200
        next(table for table in changed if column in table)[column][row] = value
        for name, columns in zip(("users.parquet", "orders.parquet"), changed, strict=True):
            write(tmp_path, name, columns, "us")
        with pytest.raises(ValueError, match=message):
            build_dataset(spec_of(tmp_path), tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": {"a:r:b": EdgeTable("e.parquet", source_is_row=True)}}, "source_is_row needs the table of the"),
        ({"edges": {"a:r:b": EdgeTable("e.parquet")}, "time_unit": "ms"}, "time_unit must be 's', but is 'ms'"),
    ],
)
def test_settings_that_contradict_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec(**settings)


def test_bounds_and_times_need_times(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="until must map columns to integers, dates or times, but has"):
        NodeTable("n.parquet", until={"at": None})
    with pytest.raises(TypeError, match="until must be a mapping"):
        NodeTable("n.parquet", until="2020-01-01")  # type: ignore[arg-type]
    edges = {
        "n:r:n": EdgeTable({"source": np.array([0]), "destination": np.array([0]), "at": np.array([5])}, time="at")
    }
    with pytest.raises(TypeError, match="at must have dates or times, because time_unit is 's', but has int64"):
        build_dataset(Spec(edges, {"n": NodeTable(count=1)}, time_unit="s"))
    write(tmp_path, "users.parquet", rows_of(0, False)[0], "ms")
    table = NodeTable("users.parquet", until={"joined": "soon"})
    with pytest.raises(ValueError, match="until must be a bound of joined, which has timestamp"):
        build_dataset(Spec({"n:r:n": edges["n:r:n"]}, {"n": table}, folder=tmp_path))
    with pytest.raises(ValueError, match=r"until: .*users\.parquet has no column 'left'"):
        build_dataset(Spec(edges, {"n": NodeTable("users.parquet", until={"left": 1})}, folder=tmp_path))
