"""Features, labels, splits and classes of rows, whatever the tables and arrays that they are read from."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.ingest.build import row_outputs
from graphfeed.ingest.build.growing_arrays import Place
from graphfeed.ingest.build.join_rows import Part, join_array
from graphfeed.ingest.build.row_outputs import joined, open_reference
from graphfeed.ingest.build.row_task import RowTask
from graphfeed.ingest.build.spec import Table
from graphfeed.ingest.build.table_tasks import Piece, Reading
from graphfeed.ingest.build.task_metadata import describe_task
from graphfeed.ingest.tables.table import TableSource

EDGES = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 0])}, source="s", destination="d")


def build(folder: Path, columns: dict[str, Any], on_error: Any = "raise", **options: Any) -> Any:
    arrays = {name: np.array(values) for name, values in columns.items()}
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(arrays, **options)}, folder=folder)
    return build_dataset(spec, on_error=on_error)


def test_columns_and_arrays_stand_beside_each_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    np.savez(tmp_path / "b.npz", x=np.array([0.5, 1.5, 2.5]))
    dataset = build(
        tmp_path, {"u": [7, 8, 9]}, features={"all": ["u", "a.npy", "b.npz#x"], "whole": ["u", "a.npy"], "u": "u"}
    )
    assert dataset.feature.read("node", "n", "all").tolist() == [[7, 0, 1, 0.5], [8, 2, 3, 1.5], [9, 4, 5, 2.5]]
    assert str(dataset.feature.read("node", "n", "all").dtype) == "torch.float32"
    assert str(dataset.feature.read("node", "n", "whole").dtype) == "torch.int64"
    assert dataset.feature.read("node", "n", "u").tolist() == [[7], [8], [9]]


@pytest.mark.parametrize(("rows", "message"), [(2, "has 2 rows, but"), (4, "has 4 rows, but its table has 3")])
def test_an_array_of_another_length_is_refused(tmp_path: Path, rows: int, message: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros(rows))
    with pytest.raises(ValueError, match=rf"a\.npy {message}"):
        build(tmp_path, {"u": [7, 8, 9]}, features={"a": "a.npy"})


def test_nan_in_an_array_is_named_or_replaced(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1.0], [np.nan], [3.0]]))
    with pytest.raises(ValueError, match=r"frame 0, row 1: a\.npy is nan, which has NaN; the key `missing:`"):
        build(tmp_path, {"u": [7, 8, 9]}, features={"a": "a.npy"})
    dataset = build(tmp_path, {"u": [7, 8, 9]}, features={"a": "a.npy"}, missing=0)
    assert dataset.feature.read("node", "n", "a").tolist() == [[1], [0], [3]]


def test_arrays_that_cannot_be_features_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array(["t"]))
    with pytest.raises(ValueError, match=r"a\.npz can't be read: .*write FILE\.npz#NAME"):
        open_reference("a.npz", tmp_path)
    with pytest.raises(ValueError, match=r"a\.npz#x must have rows of numbers, but is <U1"):
        open_reference("a.npz#x", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"b\.npy, which a feature names"):
        open_reference("b.npy", tmp_path)


def test_texts_are_classes_in_alphabetical_order_whatever_their_order(tmp_path: Path) -> None:
    labels = ["b", "c", "a", "c"]
    (task,) = build(tmp_path, {"y": labels}, label="y").tasks
    assert task.metadata == {"name": "node_classification", "num_classes": 3, "class_names": ["a", "b", "c"]}
    (items,) = task.train_set._itemsets.values()
    assert [part.tolist() for part in items[:]] == [[0, 1, 2, 3], [1, 2, 0, 2]]


def test_integers_below_0_and_nan_are_no_labels(tmp_path: Path) -> None:
    (task,) = build(tmp_path, {"y": [3, -1, 0]}, label="y").tasks
    (items,) = task.train_set._itemsets.values()
    assert [part.tolist() for part in items[:]] == [[0, 2], [3, 0]]
    assert task.metadata["num_classes"] == 4
    (task,) = build(tmp_path, {"y": [0.5, np.nan, 2.5]}, label="y").tasks
    (items,) = task.train_set._itemsets.values()
    assert [part.tolist() for part in items[:]] == [[0, 2], [0.5, 2.5]]
    assert "num_classes" not in task.metadata


def test_masks_and_values_split_the_rows(tmp_path: Path) -> None:
    masks = {"tr": [True, False, True], "te": [False, True, False]}
    (task,) = build(tmp_path, masks, split=Split(train="tr", test="te")).tasks
    assert task.train_set._itemsets["n"][:].tolist() == [0, 2]
    assert task.validation_set is None
    (task,) = build(tmp_path, {"s": ["train", "x", "validation"]}, split="s").tasks
    assert task.train_set._itemsets["n"][:].tolist() == [0]
    assert task.validation_set._itemsets["n"][:].tolist() == [2]


def test_too_many_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the label y has more than 10000 different texts"):
        build(tmp_path, {"y": [str(number) for number in range(10_001)]}, label="y")


def test_whole_numbers_stay_whole_beside_each_other() -> None:
    assert joined([np.array([1, 2]), np.array([3, 4], dtype=np.int8)]).dtype == np.int64
    assert joined([np.array([1, 2]), np.array([0.5, 4.0])]).dtype == np.float32


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (
            {"tr": [1, 0, 1], "te": [0, 0, 1]},
            "frame 0, row 2: te is 1, but the row is for another part than test already",
        ),
        ({"tr": [1, 0, 2], "te": [0, 1, 0]}, "frame 0, row 2: tr is 2, but a mask must be 0 or 1"),
        ({"tr": [1.0, np.nan, 0.0], "te": [0, 1, 0]}, "frame 0, row 1: tr is nan, but a mask must be 0 or 1"),
    ],
)
def test_a_row_is_in_one_part_at_most(tmp_path: Path, masks: dict[str, Any], message: str) -> None:
    columns = {"id": [0, 1, 5], **masks}
    with pytest.raises(ValueError, match=message):
        build(tmp_path, columns, id="id", split=Split(train="tr", test="te"))
    dataset = build(tmp_path, columns, "skip", id="id", split=Split(train="tr", test="te"))
    assert [entry["rows"] for entry in dataset.yaml_data["skipped"] if entry["reason"][:2] in {"tr", "te"}] == [1]


def test_features_have_the_byte_order_of_the_machine(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([0.5, 1.5, 2.5], dtype=">f4"))
    np.save(tmp_path / "b.npy", np.array([1, 2, 3], dtype=">i8"))
    dataset = build(tmp_path, {"u": [7, 8, 9]}, features={"a": "a.npy", "b": "b.npy"})
    assert dataset.feature.read("node", "n", "a").tolist() == [[0.5], [1.5], [2.5]]
    assert dataset.feature.read("node", "n", "b").tolist() == [[1], [2], [3]]
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(features={"a": "a.npy"})}, folder=tmp_path)
    assert build_dataset(spec).feature.read("node", "n", "a").tolist() == [[0.5], [1.5], [2.5]]


def test_rows_that_are_left_out_first_say_nothing_of_the_length_of_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphfeed.ingest.build.dataset_builder.rows_at_a_time", lambda _: 1)
    size = 3000
    ids = pa.array([None] * 2000 + list(range(size - 2000)))
    vectors = pa.array([[1, 2]] * 2900 + [[3, None]] * 100)
    nodes = NodeTable(pa.table({"id": ids, "v": vectors}), id="id", features={"v": "v"}, missing=7)
    dataset = build_dataset(Spec({"n:r:n": EDGES}, {"n": nodes}), on_error="skip")
    found = dataset.feature.read("node", "n", "v")
    assert found.dtype == torch.int64
    assert found.tolist() == [[1, 2]] * 900 + [[3, 7]] * 100


@pytest.mark.parametrize(
    ("values", "train", "test"),
    [([True, False], True, False), ([1.0, 0.0], 1, 0), ([1, 0], 1.0, 0.0), (["a", "b"], "a", "b")],
)
def test_the_values_of_a_split_are_compared_as_the_column_has_them(
    tmp_path: Path, values: Any, train: Any, test: Any
) -> None:
    (task,) = build(tmp_path, {"p": values}, split=Split("p", train=train, test=test)).tasks
    assert task.train_set._itemsets["n"][:].tolist() == [0]
    assert task.test_set._itemsets["n"][:].tolist() == [1]


@pytest.mark.parametrize("split", [Split("p", train="a", test="typo"), "p"])
def test_a_value_of_a_split_that_no_row_has_is_named(tmp_path: Path, split: Any) -> None:
    with pytest.raises(
        ValueError, match=r"split: no row has '(typo|train)' in the column 'p'.* the column has \['a', 'b'"
    ):
        build(tmp_path, {"p": ["a", "b"]}, split=split)


@pytest.mark.parametrize("part", ["train", ""])
def test_rows_without_a_label_are_no_items_whether_or_not_the_split_has_them(tmp_path: Path, part: str) -> None:
    columns = {"y": [2, np.nan, 1, np.nan], "part": ["train", part, "test", "test"]}
    (task,) = build(tmp_path, columns, label="y", split="part").tasks
    assert [values.tolist() for values in task.train_set._itemsets["n"][:]] == [[0], [2]]
    assert [values.tolist() for values in task.test_set._itemsets["n"][:]] == [[2], [1]]


@pytest.mark.parametrize(
    ("labels", "found", "classes"),
    [
        ([3, np.nan, 1], torch.tensor([3, 1]), 4),  # a data frame's integers, of which one is missing
        ([3.5, np.nan, 1], torch.tensor([3.5, 1]), None),
        ([-3, np.nan, 1], torch.tensor([-3.0, 1]), None),
        ([3.0, 2, 1], torch.tensor([3.0, 2, 1]), None),
    ],
)
def test_whole_numbers_beside_nan_are_classes(
    tmp_path: Path, labels: list[float], found: torch.Tensor, classes: int | None
) -> None:
    (task,) = build(tmp_path, {"y": labels}, label="y").tasks
    _, values = task.train_set._itemsets["n"][:]
    assert torch.equal(values, found)
    assert values.dtype == found.dtype
    assert task.metadata.get("num_classes") == classes


def test_a_list_of_dicts_is_a_table(tmp_path: Path) -> None:
    rows = [{"id": "a", "f": [1, 2]}, {"id": "b", "f": [3, 4], "y": 1}]
    edges = EdgeTable([{"source": "b", "destination": "a"}])
    dataset = build_dataset(Spec({"n:r:n": edges}, {"n": NodeTable(rows, id="id", features={"f": "f"}, label="y")}))
    assert dataset.feature.read("node", "n", "f").tolist() == [[1, 2], [3, 4]]
    items: Any = dataset.tasks[0].train_set
    assert [values.tolist() for values in items._itemsets["n"][:]] == [[1], [1]]
    assert dataset.ids("n")[:] == ["a", "b"]
    tables = [{"s": np.array([0]), "d": np.array([1])}, {"s": np.array([1]), "d": np.array([0])}]
    assert build_dataset(Spec({"e": EdgeTable(tables, source="s", destination="d")})).graph.total_num_edges == 2


def build_joined(*tables: dict[str, list[Any]], **options: Any) -> Any:
    arrays = [{name: np.array(values) for name, values in table.items()} for table in tables]
    return build_dataset(Spec({"n:r:n": EDGES}, {"n": NodeTable(arrays, **options)}))


def test_an_array_that_stays_as_it_is_is_moved_once(tmp_path: Path) -> None:
    np.save(tmp_path / "part.npy", np.arange(3))
    for _ in range(2):  # an interrupted run has moved it already
        assert join_array(tmp_path / "whole.npy", [Part(tmp_path / "part.npy")]) == "i"
        assert np.load(tmp_path / "whole.npy").tolist() == [0, 1, 2]
        assert not (tmp_path / "part.npy").exists()


def test_rows_of_several_files_stand_behind_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.ingest.build_joined.join_rows.PART_BYTES", 16)
    parts = []
    for number, rows in enumerate((5, 0, 2)):
        np.save(tmp_path / f"{number}.npy", np.full((rows, 3), number, dtype=np.float32))
        parts.append(Part(tmp_path / f"{number}.npy", lambda block: block + 1))
    assert join_array(tmp_path / "whole.npy", parts) == "f"
    assert np.load(tmp_path / "whole.npy").tolist() == [[1] * 3] * 5 + [[3] * 3] * 2


def test_classes_of_all_tables_are_numbered_together() -> None:
    (task,) = build_joined({"y": ["z", "m"]}, {"y": ["a", "z"]}, label="y").tasks
    assert task.metadata["class_names"] == ["a", "m", "z"]
    assert [part.tolist() for part in task.train_set._itemsets["n"][:]] == [[0, 1, 2, 3], [2, 1, 0, 2]]


@pytest.mark.parametrize(("last", "classes"), [([2.0, 4.0], 5), ([2.0, 4.5], None)])
def test_whole_numbers_are_classes_if_they_are_whole_in_all_tables(last: list[float], classes: int | None) -> None:
    (task,) = build_joined({"y": [1.0, np.nan]}, {"y": last}, label="y").tasks
    seeds, labels = task.train_set._itemsets["n"][:]
    assert seeds.tolist() == [0, 2, 3]
    assert labels.tolist() == [1, *last]
    assert labels.is_floating_point() == (classes is None)
    assert task.metadata.get("num_classes") == classes


def test_too_many_classes_of_all_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_outputs, "MOST_CLASSES", 2)
    monkeypatch.setattr("graphfeed.ingest.build_joined.join_rows.MOST_CLASSES", 2)
    with pytest.raises(ValueError, match="the label y has more than 2 different texts"):
        build_joined({"y": ["z", "m"]}, {"y": ["a", "z"]}, label="y")


def test_the_values_of_a_split_may_be_in_different_tables() -> None:
    tables: list[dict[str, Any]] = [{"p": ["a", "a"]}, {"p": ["c", "b"]}]
    (task,) = build_joined(*tables, split=Split("p", train="a", test="b")).tasks
    assert task.train_set._itemsets["n"][:].tolist() == [0, 1]
    assert task.test_set._itemsets["n"][:].tolist() == [3]
    with pytest.raises(ValueError, match=r"no row has 'd' in the column 'p'.* the column has \['a', 'c', 'b'\]"):
        build_joined(*tables, split=Split("p", train="a", test="d"))


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


class Rows(RowTask):
    def read(self, reading: Reading, folder: Path) -> Piece:
        raise NotImplementedError


def split_rows(sources: list[TableSource], folder: Path, **options: Any) -> list[tuple[str, int, Place | None]]:
    given = {"table": Table(), "spec_folder": folder, **options}
    tasks = Rows(prefix="n", **given).split(sources, folder / "n")
    return [(task.prefix, task.first_row, task.place) for task in tasks]


def test_features_have_their_places_unless_rows_may_be_left_out_or_cannot_be_counted(tmp_path: Path) -> None:
    sources = [TableSource(pa.table({"x": range(rows)}), "t") for rows in (2, 0, 3)]
    places = [Place(tmp_path / "n", 5, first) for first in (0, 2, 2)]
    assert split_rows(sources, tmp_path) == [("n_0", 0, places[0]), ("n_1", 2, places[1]), ("n_2", 2, places[2])]
    assert split_rows(sources, tmp_path, on_error="skip") == [("n_0", 0, None), ("n_1", 2, None), ("n_2", 2, None)]
    (tmp_path / "a.csv").write_text("x\n1\n")
    texts = TableSource(tmp_path / "a.csv", "a.csv")
    assert split_rows([*sources, texts], tmp_path) == [(f"n_{number}", 0, None) for number in range(4)]
    np.save(tmp_path / "a.npy", np.arange(6))
    assert split_rows([*sources, texts], tmp_path, table=Table(features={"a": "a.npy"})) == [("n_0", 0, None)]
    assert len(split_rows(sources, tmp_path, table=Table(features={"a": "a.npy"}))) == 3


def test_an_archive_of_arrays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(4.0))
    tables = [pa.table({"y": [number, number]}) for number in range(2)]
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    spec = Spec({"e": edges}, {"n": NodeTable(tables, features={"f": ["y", "a.npz#x"]})}, folder=tmp_path)
    opened: list[str] = []
    read = row_outputs.open_reference

    def record(reference: str, folder: Path) -> Any:
        opened.append(reference)
        return read(reference, folder)

    monkeypatch.setattr(row_outputs, "open_reference", record)
    found = build_dataset(spec).feature.read("node", None, "f")
    assert found.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    assert opened == ["a.npz#x"]


def test_arrays_beside_tables_that_do_not_say_how_many_rows_they_have(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("x\n" + f"{number}\n" * (number + 1))
    np.save(tmp_path / "a.npy", np.arange(6))
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    spec = Spec({"e": edges}, {"n": NodeTable("*.csv", features={"f": ["x", "a.npy"]})}, folder=tmp_path)
    with ThreadPoolExecutor(2) as executor:
        for dataset in (build_dataset(spec), build_dataset(spec, executor=executor)):
            found = dataset.feature.read("node", None, "f").tolist()
            assert found == [[0, 0], [1, 1], [1, 2], [2, 3], [2, 4], [2, 5]]


def described(num_classes: int, classes: list[str] | None, **items: Any) -> dict[str, Any]:
    return {"items": items, "num_classes": num_classes, "classes": classes}


def test_a_task_has_the_items_of_all_types_and_the_classes_of_each_that_has_some() -> None:
    train = {"seeds": "a.npy", "labels": "b.npy"}
    nodes: dict[str | None, dict[str, Any]] = {
        "x": described(2, ["n", "y"], train=train),
        "y": described(3, None, test={"seeds": "c.npy"}),
    }
    task = describe_task(nodes, "classify", in_memory=True)
    assert task is not None
    assert list(task) == ["name", "num_classes", "class_names", "train_set", "test_set"]
    assert task["num_classes"] == {"x": 2, "y": 3}
    assert task["class_names"] == {"x": ["n", "y"]}
    (entry,) = task["train_set"]
    assert entry["type"] == "x"
    assert entry["data"][1] == {"name": "labels", "format": "numpy", "path": "graphfeed/b.npy", "in_memory": True}
    assert describe_task({"x": described(2, None)}, "classify", in_memory=False) is None
