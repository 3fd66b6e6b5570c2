"""Rows of edges that are wrong, and the scratch files of those that are right."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build.edge_task import EdgeTask, read_edges
from graphfeed.ingest.build.node_ids import StoredIds
from graphfeed.ingest.build.scratch_edges import EdgeFiles
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import SCRATCH
from tests.ingest.example_tables import tasks_in


def build(folder: Path, lines: str, on_error: Any = "raise", **options: Any) -> Any:
    (folder / "edges.csv").write_text(lines)
    edges = EdgeTable("edges.csv", source="s", destination="d", **options)
    nodes = NodeTable({"id": np.array(["a", "b", "c"])}, id="id") if "b" in lines else NodeTable(count=3)
    return build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=folder), on_error=on_error)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ("s,d\n0,1\n0,3\n", {}, r"row 1: d is '3', which is out of range: there are 3 nodes, from 0"),
        ("s,d\n0,1\n-1,0\n", {}, r"row 1: s is '-1', which is out of range"),
        ("s,d\na,b\na,x\n", {}, r"row 1: d is 'x', but no row of the nodes has that id"),
        ("s,d\na,b\na,\n", {}, r"row 1: d is 'missing', but must be an id"),
        ("s,d,t\n0,1,5\n0,1,4\n", {"time": "t", "time_sorted": True}, r"row 1: t is '4', which is earlier"),
        ("s,d,w\n0,1,5\n0,1,-4\n", {"weight": "w"}, r"row 1: w is '-4', but a weight must be a number from 0"),
        ("s,d,w\n0,1,5\n0,1,nan\n", {"weight": "w"}, r"row 1: w is 'nan', but a weight must be"),
        ("s,d,x\n0,1,5\n0,1,nan\n", {"features": {"x": "x"}}, r"row 1: x is 'nan', which has NaN"),
    ],
)
def test_a_wrong_row_is_named_or_left_out(tmp_path: Path, lines: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"edges\.csv, {message}"):
        build(tmp_path, lines, **options)
    dataset = build(tmp_path, lines, "skip", **options)
    assert dataset.graph.total_num_edges == 1
    (entry,) = dataset.yaml_data["skipped"]
    assert entry["rows"] == 1
    assert entry["first"].startswith("row 1: ")


def test_texts_for_nodes_that_are_numbered_are_a_type_error(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("s,d\nx,y\n")
    edges = EdgeTable("edges.csv", source="s", destination="d")
    with pytest.raises(TypeError, match=r"edges\.csv: s has texts, but the ids of these nodes are integers"):
        build_dataset(Spec({"e": edges}, {"n": NodeTable(count=3)}, folder=tmp_path))


def test_times_that_go_back_over_batches_and_skipped_rows_are_noticed(tmp_path: Path) -> None:
    times = [3, 1, 4, 1, 5, 9, 2, 6, 9]
    lines = "s,d,t\n" + "".join(f"0,1,{time}\n" for time in times)
    dataset = build(tmp_path, lines, "skip", time="t", time_sorted=True)
    assert dataset.graph.edge_attributes["time"].tolist() == [3, 4, 5, 9, 9]


def test_batches_are_split_by_ranges_of_destinations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"source": rng.integers(0, 10, 50), "destination": rng.integers(0, 10, 50), "at": np.arange(50)}
    files = EdgeFiles(tmp_path, "e", 4, 10, ("source", "destination", "time", "row"))
    source, nodes = TableSource(table, "edges"), StoredIds(tmp_path, None, 10)
    task = EdgeTask(
        prefix="e", table=EdgeTable(table, time="at"), spec_folder=tmp_path, files=files, ids=(nodes, nodes)
    )
    described = read_edges(task, [source, source], tasks_in(tmp_path / "out", 8), tmp_path)
    assert described["count"] == 100
    assert described["pieces"] == [["e_0", 50], ["e_1", 50]]
    for prefix, _ in described["pieces"]:
        files = EdgeFiles(tmp_path / "out" / SCRATCH, prefix, 4, 10, files.columns)
        columns = {name: np.load(files.path(name)) for name in files.columns}
        counts = files.counts()
        assert counts.shape == (7, 4)
        order = np.argsort(columns["row"])
        assert columns["destination"][order].tolist() == table["destination"].tolist()
        assert columns["time"][order].tolist() == list(range(50))
        ranges = files.range_of(columns["destination"].astype(np.int64))
        assert ranges.tolist() == np.repeat(np.tile(np.arange(4), 7), counts.reshape(-1)).tolist()


@pytest.mark.parametrize("times", [[[1, 4], [2, 5], [3, 6]], [[7, 8], [1, 2], [3, 9]], [[], [2, 1], [1, 1]]])
def test_times_that_go_back_over_tables_are_noticed(tmp_path: Path, times: list[list[int]]) -> None:
    tables = [{"s": np.zeros(len(t), int), "d": np.zeros(len(t), int), "t": np.array(t, int)} for t in times]
    edges = EdgeTable(tables, source="s", destination="d", time="t", time_sorted=True)
    spec = Spec({"n:r:n": edges}, {"n": NodeTable(count=1)})
    with pytest.raises(ValueError, match=r"frame [12], row \d: t is \d, which is earlier than in a row before"):
        build_dataset(spec)
    flat = np.concatenate(times)
    expected = flat[flat >= np.maximum.accumulate(flat)].tolist()
    with ThreadPoolExecutor(2) as executor:
        for dataset in (build_dataset(spec, on_error="skip"), build_dataset(spec, on_error="skip", executor=executor)):
            assert dataset.graph is not None
            assert dataset.graph.edge_attributes["time"].tolist() == expected
            assert sum(entry["rows"] for entry in dataset.yaml_data["skipped"]) == len(flat) - len(expected)
