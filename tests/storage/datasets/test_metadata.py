from pathlib import Path
from typing import Any

import pytest

from graphfeed.storage.datasets.metadata import check_folder, parse_metadata, read_yaml, stay_inside
from tests import on_disk


def test_all_of_it(tmp_path: Path) -> None:
    metadata = parse_metadata(on_disk.untyped(tmp_path))
    assert metadata.dataset_name == "small"
    assert metadata.graph is not None
    assert metadata.graph.num_nodes == {None: 4}
    assert [part.name for part in metadata.graph.feature_data] == ["weight", "age"]
    assert metadata.feature_data[0].extra_fields == {"num_categories": 5}
    assert metadata.feature_data[0].in_memory
    assert metadata.tasks[0].extra_fields == {"name": "node_classification", "num_classes": 2}
    assert [part.name for part in metadata.tasks[0].train_set[0].data] == ["seeds", "labels"]
    assert metadata.tasks[1].validation_set == ()


def test_types_are_in_alphabetical_order(tmp_path: Path) -> None:
    graph = parse_metadata(on_disk.typed(tmp_path)).graph
    assert graph is not None
    assert list(graph.num_nodes) == ["item", "user"]
    assert [part.type for part in graph.edges] == sorted(on_disk.TYPED_EDGES)
    assert [part.key for part in graph.edges] == ["graph.edges[1]", "graph.edges[2]", "graph.edges[0]"]


def test_little_is_enough() -> None:
    metadata = parse_metadata({"feature_data": None, "tasks": [{"train_set": None}]})
    assert (metadata.dataset_name, metadata.graph, metadata.feature_data) == (None, None, ())
    assert metadata.tasks[0].train_set == ()


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("graph", [], r"graph must be a mapping, but is \[\]"),
        ("graph.nodes", [], r"graph\.nodes is missing or empty"),
        ("graph.nodes.0", 4, r"graph\.nodes\[0\] must be a mapping of keys to values, but is 4"),
        ("graph.nodes.0.num", "4", r"graph\.nodes\[0\]\.num must be a whole number, but is '4'"),
        ("graph.nodes.0.num", True, r"graph\.nodes\[0\]\.num must be a whole number"),
        ("graph.nodes.0.num", -1, r"graph\.nodes\[0\]\.num must be 0 or more, but is -1"),
        ("graph.nodes.0.num", None, r"graph\.nodes\[0\]\.num is missing"),
        ("graph.nodes.0.type", 3, r"graph\.nodes\[0\]\.type must be a text, but is 3; put it in quotes"),
        ("graph.nodes.0.type", "user", r"must all have a type, or be one entry each without"),
        ("graph.edges.0.format", "cvs", r"graph\.edges\[0\]\.format must be one of csv, numpy, torch, but is 'cvs'"),
        ("graph.feature_data.0.domain", "graph", r"graph\.feature_data\[0\]\.domain must be one of node, edge"),
        (
            "graph.feature_data.1.type",
            "user",
            r"graph\.feature_data 'age' of domain node must cover the types \[None\]",
        ),
        ("feature_data.1.domain", "edges", r"feature_data\[1\]\.domain must be one of node, edge, graph"),
        ("feature_data.0.format", "csv", r"feature_data\[0\]\.format must be one of numpy, torch"),
        ("feature_data.0.in_memory", "no", r"feature_data\[0\]\.in_memory must be true or false, but is 'no'"),
        ("feature_data.0.name", None, r"feature_data\[0\]\.name is missing; give a text"),
        ("tasks.0.train_set.0.data", [], r"tasks\[0\]\.train_set\[0\]\.data is missing or empty"),
        ("tasks.0.train_set.0.data.1.path", None, r"tasks\[0\]\.train_set\[0\]\.data\[1\]\.path is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, key: str, value: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_metadata(on_disk.change(on_disk.untyped(tmp_path), key, value))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("graph.edges.0.type", "user:likes", r"graph\.edges\[0\]\.type must be 'source:relation:destination'"),
        ("graph.edges.0.type", "user:likes:shop", r"with types of graph\.nodes, \['user', 'item'\]"),
        ("graph.edges.1.type", "user:likes:item", r"graph\.edges\[1\] is there twice"),
        ("graph.nodes.1.type", "user", r"graph\.nodes\[1\] is there twice"),
        ("graph.nodes.1.type", None, r"must all have a type"),
        ("graph.feature_data.0.name", "w", r"graph\.feature_data 'w' of domain edge must cover the types"),
        ("tasks.0.train_set.0.type", None, r"tasks\[0\]\.train_set has several entries, so each needs a type"),
        ("tasks.0.train_set.0.data.0.name", "labels", r"tasks\[0\]\.train_set must have the same names in every entry"),
        ("feature_data.0.type", "item:liked_by:user", r"feature_data\[1\] is there twice"),
    ],
)  # fmt: skip
def test_types_that_are_wrong_are_named(tmp_path: Path, key: str, value: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_metadata(on_disk.change(on_disk.typed(tmp_path), key, value))


@pytest.mark.parametrize("key", ["notes", "graph.node", "tasks.0.train_set.0.data.0.in_memry"])
def test_a_key_that_is_not_known_gives_a_warning(tmp_path: Path, key: str) -> None:
    data = on_disk.change(on_disk.untyped(tmp_path), key, 1)
    with pytest.warns(UserWarning, match=rf"metadata\.yaml: .*{key.split('.')[-1]} is not known and ignored"):
        parse_metadata(data)


@pytest.mark.parametrize(
    ("key", "close"),
    [
        ("feature_data.0.in_memroy", "in_memory"),
        ("graph.feature_data.0.typ", "type"),
        ("tasks.0.validaton_set", "validation_set"),
        ("tasks.0.train_set.0.data.0.inmemory", "in_memory"),
        ("task", "tasks"),
    ],
)
def test_a_key_that_is_nearly_known_gives_a_warning_also_where_others_are_metadata(
    tmp_path: Path, key: str, close: str
) -> None:
    data = on_disk.change(on_disk.untyped(tmp_path), key, 1)
    if close in data:
        del data[close]
    with pytest.warns(UserWarning, match=rf"metadata\.yaml: .*{key.split('.')[-1]} is .*; is it a typo of {close}\?"):
        parse_metadata(data)


def test_other_metadata_gives_no_warning(tmp_path: Path) -> None:
    data = on_disk.untyped(tmp_path)
    data["feature_data"][0] |= {"num_categories": 3, "unit": "m", "names": ["a"], "dtype": "f4"}
    data["tasks"][0] |= {"num_labels": 3, "metric": "acc", "settings": 1}
    assert parse_metadata(data).feature_data[0].extra_fields["names"] == ["a"]


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    path = tmp_path / "metadata.yaml"
    for text, error in (
        ("!!python/object/apply:os.getcwd []", "can't be read as YAML"),
        ("a: [", "can't be read as YAML"),
        ("- a", "the file must be a mapping"),
        ("", "the file must be a mapping"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=error):
            read_yaml(path)


def test_paths_stay_inside(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    assert stay_inside(folder, "a/../b.npy", "key") == folder.resolve() / "b.npy"
    (folder / "link").symlink_to(tmp_path)
    for path in ("../x.npy", str(tmp_path / "x.npy"), "link/x.npy", "../data-2/x.npy"):
        with pytest.raises(ValueError, match=r"graph\.edges\[0\]\.path is .* out of the dataset's folder"):
            stay_inside(folder, path, "graph.edges[0].path")


def test_folder(tmp_path: Path) -> None:
    assert check_folder(str(tmp_path)) == tmp_path.resolve()
    with pytest.raises(FileNotFoundError, match="Invalid dataset path: gone"):
        check_folder("gone")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="The dataset must be a directory"):
        check_folder(tmp_path / "file")
