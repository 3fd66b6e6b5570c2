"""What tasks wrote becomes one data set, whatever the tables that each of them read."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.ingest.build import row_outputs
from graphfeed.ingest.build.join_rows import Part, join_array

EDGES = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 0])}, source="s", destination="d")


def build(*tables: dict[str, list[Any]], **options: Any) -> Any:
    arrays = [{name: np.array(values) for name, values in table.items()} for table in tables]
    return build_dataset(Spec({"n:r:n": EDGES}, {"n": NodeTable(arrays, **options)}))


def test_an_array_that_stays_as_it_is_is_moved_once(tmp_path: Path) -> None:
    np.save(tmp_path / "part.npy", np.arange(3))
    for _ in range(2):  # an interrupted run has moved it already
        assert join_array(tmp_path / "whole.npy", [Part(tmp_path / "part.npy")]) == "i"
        assert np.load(tmp_path / "whole.npy").tolist() == [0, 1, 2]
        assert not (tmp_path / "part.npy").exists()


def test_rows_of_several_files_stand_behind_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.ingest.build.join_rows.PART_BYTES", 16)
    parts = []
    for number, rows in enumerate((5, 0, 2)):
        np.save(tmp_path / f"{number}.npy", np.full((rows, 3), number, dtype=np.float32))
        parts.append(Part(tmp_path / f"{number}.npy", lambda block: block + 1))
    assert join_array(tmp_path / "whole.npy", parts) == "f"
    assert np.load(tmp_path / "whole.npy").tolist() == [[1] * 3] * 5 + [[3] * 3] * 2


def test_classes_of_all_tables_are_numbered_together() -> None:
    (task,) = build({"y": ["z", "m"]}, {"y": ["a", "z"]}, label="y").tasks
    assert task.metadata["class_names"] == ["a", "m", "z"]
    assert [part.tolist() for part in task.train_set._itemsets["n"][:]] == [[0, 1, 2, 3], [2, 1, 0, 2]]


@pytest.mark.parametrize(("last", "classes"), [([2.0, 4.0], 5), ([2.0, 4.5], None)])
def test_whole_numbers_are_classes_if_they_are_whole_in_all_tables(last: list[float], classes: int | None) -> None:
    (task,) = build({"y": [1.0, np.nan]}, {"y": last}, label="y").tasks
    seeds, labels = task.train_set._itemsets["n"][:]
    assert seeds.tolist() == [0, 2, 3]
    assert labels.tolist() == [1, *last]
    assert labels.is_floating_point() == (classes is None)
    assert task.metadata.get("num_classes") == classes


def test_too_many_classes_of_all_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_outputs, "MOST_CLASSES", 2)
    monkeypatch.setattr("graphfeed.ingest.build.join_rows.MOST_CLASSES", 2)
    with pytest.raises(ValueError, match="the label y has more than 2 different texts"):
        build({"y": ["z", "m"]}, {"y": ["a", "z"]}, label="y")


def test_the_values_of_a_split_may_be_in_different_tables() -> None:
    tables: list[dict[str, Any]] = [{"p": ["a", "a"]}, {"p": ["c", "b"]}]
    (task,) = build(*tables, split=Split("p", train="a", test="b")).tasks
    assert task.train_set._itemsets["n"][:].tolist() == [0, 1]
    assert task.test_set._itemsets["n"][:].tolist() == [3]
    with pytest.raises(ValueError, match=r"no row has 'd' in the column 'p'.* the column has \['a', 'c', 'b'\]"):
        build(*tables, split=Split("p", train="a", test="d"))


def test_an_array_is_as_long_as_all_tables_whoever_reads_them(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5))
    tables = [{"x": np.arange(2)}, {"x": np.arange(2)}]
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(tables, features={"a": "a.npy"})}, folder=tmp_path)
    with ThreadPoolExecutor(2) as executor, pytest.raises(ValueError, match=r"a\.npy has 5 rows, but its table has 4"):
        build_dataset(spec, executor=executor)
    np.save(tmp_path / "a.npy", np.arange(4))
    with ThreadPoolExecutor(2) as executor:
        found = build_dataset(spec, executor=executor)
    assert found.feature.read("node", "n", "a").flatten().tolist() == [0, 1, 2, 3]
