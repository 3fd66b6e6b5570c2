"""A run that was interrupted and goes on with the same specification, or with another one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build import join_rows
from graphfeed.ingest.build.edge_task import EdgeReader
from graphfeed.ingest.build.node_task import NodeTask
from graphfeed.ingest.tables.table import TableSource
from tests.ingest.interrupted import Stopped, stop_before
from tests.on_disk import arrays

TABLES: dict[str, Any] = {
    "a": np.array([0, 1, 2, 2]),
    "b": np.array([1, 2, 0, 1]),
    "y": np.array(["z", "m", "a", "z"]),
    "w": np.array([0.5, 1.5, 2.5, 3.5]),
}


def spec_of(folder: Path, edges: dict[str, dict[str, Any]], count: int = 3) -> Spec:
    np.savez(folder / "edges.npz", **TABLES) if not (folder / "edges.npz").exists() else None
    tables = {kind: EdgeTable("edges.npz", source="a", destination="b", **own) for kind, own in edges.items()}
    ends = {end for kind in edges for end in kind.split(":")[::2]}
    return Spec(tables, {end: NodeTable(count=count) for end in ends}, folder=folder)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"n:r:n": {"label": "y"}}, {"n:r:n": {"label": "y"}}),
        ({"n:r:n": {}, "n:s:n": {}}, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}),
        ({"n:r:n": {}}, {"n:r:n": {"weight": "w"}}),
        ({"n:r:n": {"features": {"w": "w", "a": "a"}, "label": "y"}}, {"n:r:n": {}}),
        ({"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}, {"n:r:n": {}}),
        ({"m:r:m": {}, "n:r:m": {}}, {"m:r:m": {}, "m:r:n": {}}),
        ({"n:r:n": {}}, {"edge": {}}),
    ],
    ids=["same", "more features", "a weight", "fewer features", "fewer types", "other ends", "no types"],
)
@pytest.mark.parametrize("step", ["edge_0", "sort"])
def test_a_run_that_goes_on_gives_what_a_new_one_gives(tmp_path: Path, before: Any, after: Any, step: str) -> None:
    stop_before(spec_of(tmp_path, before), tmp_path / "out", step)
    spec = spec_of(tmp_path, after)
    build_dataset(spec, tmp_path / "out")
    build_dataset(spec, tmp_path / "anew")
    found, expected = arrays(tmp_path / "out"), arrays(tmp_path / "anew")
    assert list(found) == list(expected)
    assert all(found[name].tolist() == expected[name].tolist() for name in found)
    one, other = ((tmp_path / name / "graphfeed/metadata.yaml").read_text() for name in ("out", "anew"))
    assert re.sub(r"written: \d+", "", one) == re.sub(r"written: \d+", "", other)


def test_a_step_whose_files_another_specification_has_replaced_is_done_again(tmp_path: Path) -> None:
    first = spec_of(tmp_path, {"n:r:n": {"features": {"w": "w"}}})
    stop_before(first, tmp_path / "out", "sort")
    stop_before(spec_of(tmp_path, {"n:r:n": {"features": {"w": "a"}}}), tmp_path / "out", "edge_0")
    dataset = build_dataset(first, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:r:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def test_a_step_whose_files_were_removed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = spec_of(tmp_path, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}})
    stop_before(both, tmp_path / "out", "sort")
    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.ingest.build.dataset_builder.write_text", stop)
        with pytest.raises(Stopped):
            build_dataset(spec_of(tmp_path, {"n:r:n": {}}), tmp_path / "out")
    dataset = build_dataset(both, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:s:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def stop(*_: Any) -> None:
    raise Stopped


@pytest.mark.parametrize("end", [Stopped, KeyboardInterrupt])
@pytest.mark.parametrize("stopped_in", [NodeTask, EdgeReader])
def test_a_run_goes_on_within_the_tables_of_a_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException], stopped_in: Any
) -> None:
    rng = np.random.default_rng(0)
    for number in range(5):
        columns = {"a": rng.integers(0, 9, 40), "b": rng.integers(0, 9, 40), "w": rng.random(40), "t": np.arange(40)}
        part = np.array(["train", "test"])[rng.integers(0, 2, 40)]
        label = np.array([f"class {number}", "z"])[rng.integers(0, 2, 40)]
        rows = {**columns, "f": list(rng.random((40, 3))), "part": part, "y": label}
        pyarrow.parquet.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    both: dict[str, Any] = {"time": "t", "features": {"v": "f", "w": "w"}, "label": "y", "split": "part"}
    table = EdgeTable("*.parquet", source="a", destination="b", weight="w", **both)
    spec = Spec({"n:r:n": table}, {"n": NodeTable("*.parquet", id="a", **both)}, folder=tmp_path)
    write, batches, opened = stopped_in.write, TableSource.batches, []

    def stop_in_the_middle(reader: Any, batch: Any, *rest: Any) -> int:
        if Path(batch.table.name).name == "3.parquet":
            raise end
        found: int = write(reader, batch, *rest)
        return found

    def record(source: TableSource, *rest: Any) -> Any:
        opened.append(Path(source.name).stem)
        return batches(source, *rest)

    expected = build_dataset(spec, tmp_path / "anew", on_error="skip").yaml_data
    with monkeypatch.context() as patch:
        patch.setattr(stopped_in, "write", stop_in_the_middle)
        with pytest.raises(end):
            build_dataset(spec, tmp_path / "out", on_error="skip", memory=1 << 24)
    with monkeypatch.context() as patch:
        patch.setattr(TableSource, "batches", record)
        found = build_dataset(spec, tmp_path / "out", on_error="skip").yaml_data
    rest = ["3", "4"] if stopped_in is EdgeReader else ["3", "4", "0", "0", "1", "2", "3", "4"]
    assert opened[-len(rest) :] == rest
    assert set(opened[: -len(rest)]) == {"0"}, "only the length of its vectors is looked up in the first file again"
    assert found["checksums"] == expected["checksums"]
    assert found["skipped"] == expected["skipped"]
    assert found["tasks"] == expected["tasks"]
    assert sum(entry["rows"] for entry in found["skipped"]) > 0


def test_a_run_that_ended_while_rows_were_joined_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, {"n:r:n": {"features": {"w": "w", "a": "a"}, "label": "y"}})
    build_dataset(spec, tmp_path / "anew")
    join, joined = join_rows.join_array, []

    def stop_at_the_second(*given: Any) -> str:
        joined.append(given)
        if len(joined) == 2:
            raise Stopped
        return join(*given)

    with monkeypatch.context() as patch:
        patch.setattr(join_rows, "join_array", stop_at_the_second)
        with pytest.raises(Stopped):
            build_dataset(spec, tmp_path / "out")
    build_dataset(spec, tmp_path / "out")
    found, expected = arrays(tmp_path / "out"), arrays(tmp_path / "anew")
    assert list(found) == list(expected)
    assert all(found[name].tolist() == expected[name].tolist() for name in found)
