from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.datasets.metadata import parse_metadata
from graphfeed.storage.datasets.processed_arrays import Files, inside, read_items, write_features, write_tasks
from tests import on_disk


def process(folder: Path, data: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    metadata = parse_metadata(data)
    assert metadata.graph is not None
    (folder / "made").mkdir()
    files = Files(folder / "made", "made")
    counts: dict[str, dict[str | None, int]] = {
        "node": metadata.graph.num_nodes,
        "edge": {part.type: 6 if part.type is None else 4 for part in metadata.graph.edges},
    }
    features = write_features(folder, files, metadata.feature_data, counts)
    return features, write_tasks(folder, files, metadata.tasks, metadata.graph, auto_cast=True)


def test_numpy_files_are_used_where_they_lie(tmp_path: Path) -> None:
    features, tasks = process(tmp_path, on_disk.untyped(tmp_path))
    assert features[0]["path"] == "feat.npy"
    assert features[0]["num_categories"] == 5
    assert tasks[0]["train_set"][0]["data"][1]["path"] == "set/labels.npy"
    assert tasks[0]["num_classes"] == 2


def test_torch_files_one_column_and_seeds_are_converted(tmp_path: Path) -> None:
    features, tasks = process(tmp_path, on_disk.untyped(tmp_path, "pt"))
    assert np.load(tmp_path / features[0]["path"]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert np.load(tmp_path / features[1]["path"]).shape == (6, 1)
    seeds = np.load(tmp_path / tasks[1]["train_set"][0]["data"][0]["path"])
    assert seeds.dtype == np.int32
    assert seeds.tolist() == [[0, 1], [3, 2]]
    assert {part["format"] for part in features} == {"numpy"}


@pytest.mark.parametrize("array", [np.asfortranarray(np.ones((4, 2))), np.ones((4, 2), dtype=">f4")])
def test_what_torch_can_not_map_is_converted(tmp_path: Path, array: Any) -> None:
    data = on_disk.untyped(tmp_path)
    np.save(tmp_path / "feat.npy", array)
    path = process(tmp_path, data)[0][0]["path"]
    made = np.load(tmp_path / path)
    assert path != "feat.npy"
    assert made.flags.c_contiguous
    assert made.dtype.isnative
    assert np.array_equal(made, array)


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("feat.npy", np.ones((3, 2)), r"feature_data\[0\] must have 4 rows, but has shape \(3, 2\)"),
        ("row.npy", 5, r"feature_data\[1\] must have 6 rows, but has shape \(\)"),
        ("set/train.npy", [0, 4], r"train_set\[0\]\.data\[0\] must hold ids in 0 \.\. 3, but goes from 0 to 4"),
        ("set/train.npy", [-1, 2], r"train_set\[0\]\.data\[0\] must hold ids in 0 \.\. 3, but goes from -1 to 2"),
        ("set/train.npy", [0.5, 2], r"holds seeds, which must be integers, but are float64"),
        ("set/labels.npy", [0], r"tasks\[0\]\.train_set\[0\] must have arrays of equal length"),
        ("set/labels.npy", 0, r"tasks\[0\]\.train_set\[0\]\.data\[1\] must have rows, but is one number"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, values: Any, error: str) -> None:
    data = on_disk.untyped(tmp_path)
    on_disk.save(tmp_path, name, values)
    with pytest.raises(ValueError, match=error):
        process(tmp_path, data)


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("item.npy", [0, 3], r"train_set\[1\]\.data\[0\] must hold ids in 0 \.\. 2, but goes from 0 to 3"),
        ("likes.npy", [[0, 3]], r"validation_set\[0\]\.data\[0\] must hold ids in 0 \.\. 2, but goes from 3 to 3"),
        ("likes.npy", [[0, 1, 2]], r"seeds of shape \(1, 3\) and type 'user:likes:item'"),
    ],
)
def test_seeds_belong_to_their_type(tmp_path: Path, name: str, values: Any, error: str) -> None:
    data = on_disk.typed(tmp_path)
    data["feature_data"] = []
    on_disk.save(tmp_path, name, values)
    with pytest.raises(ValueError, match=error):
        process(tmp_path, data)


def test_a_feature_of_no_type_of_the_graph(tmp_path: Path) -> None:
    data = on_disk.change(on_disk.untyped(tmp_path), "feature_data.0.type", "user")
    with pytest.raises(
        ValueError, match=r"feature_data\[0\]\.type must be one of the node types \[None\], but is 'user'"
    ):
        process(tmp_path, data)


def test_item_sets(tmp_path: Path) -> None:
    metadata = parse_metadata(on_disk.typed(tmp_path))
    items = read_items(tmp_path, metadata.tasks[0].train_set, "key")
    assert isinstance(items, HeteroItemSet)
    assert [next(iter(item)) for item in items] == ["user"] * 4 + ["item"] * 3
    assert read_items(tmp_path, (), "key") is None


@pytest.mark.parametrize("ending", ["npy", "pt"])
def test_item_sets_without_names_or_in_memory(tmp_path: Path, ending: str) -> None:
    data = {"data": [on_disk.save(tmp_path, f"a.{ending}", [3, 4]) | {"in_memory": False}]}
    metadata = parse_metadata({"tasks": [{"train_set": [data]}]})
    items = read_items(tmp_path, metadata.tasks[0].train_set, "key")
    assert isinstance(items, ItemSet)
    assert items.names is None
    assert int(items[1]) == 4


def test_features_get_whole_paths(tmp_path: Path) -> None:
    metadata = parse_metadata(on_disk.untyped(tmp_path))
    assert inside(tmp_path, metadata.feature_data)[0].path == (tmp_path / "feat.npy").resolve()
    outside = parse_metadata(on_disk.change(on_disk.untyped(tmp_path), "feature_data.0.path", "../feat.npy"))
    with pytest.raises(ValueError, match=r"feature_data\[0\]\.path is '\.\./feat\.npy'"):
        inside(tmp_path, outside.feature_data)
