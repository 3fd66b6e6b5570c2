"""The metadata of a dataset: what is read and edited, errors, and bounds of the time to read it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.datasets import bounded_yaml, load_yaml
from tests.kinds import on_disk
from tests.kinds.refusals import Refusal, check_refused


def load(folder: Path, data: dict[str, Any]) -> gf.OnDiskDataset:
    return gf.OnDiskDataset(on_disk.write(folder, data)).load()


WRONG: list[tuple[str, Any, str]] = [
    ("graph", ["a" * 99] * 999, r"graph must be a mapping, but is \['aaa"),
    ("graph", [], r"graph must be a mapping, but is \[\]"),
    ("graph.nodes", [], r"graph\.nodes is missing or empty"),
    ("graph.nodes.0", 4, r"graph\.nodes\[0\] must be a mapping of keys to values, but is 4"),
    ("graph.nodes.0.num", "4", r"graph\.nodes\[0\]\.num must be an integer, but is '4'"),
    ("graph.nodes.0.num", True, r"graph\.nodes\[0\]\.num must be an integer"),
    ("graph.nodes.0.num", -1, r"graph\.nodes\[0\]\.num must be 0 or more, but is -1"),
    ("graph.nodes.0.num", None, r"graph\.nodes\[0\]\.num is missing"),
    ("graph.nodes.0.type", 3, r"graph\.nodes\[0\]\.type must be a string, but is 3; put it in quotes"),
    ("graph.nodes.0.type", "user", r"must all have a type, or be one entry each without"),
    ("graph.edges.0.format", "cvs", r"graph\.edges\[0\]\.format must be one of csv, numpy, torch, but is 'cvs'"),
    ("graph.feature_data.0.domain", "graph", r"graph\.feature_data\[0\]\.domain must be one of node, edge"),
    ("graph.feature_data.1.type", "user", r"graph\.feature_data 'age' of domain node must have types of \[None\]"),
    ("feature_data.1.domain", "edges", r"feature_data\[1\]\.domain must be one of node, edge, graph"),
    ("feature_data.0.format", "csv", r"feature_data\[0\]\.format must be one of numpy, torch"),
    ("feature_data.0.in_memory", "no", r"feature_data\[0\]\.in_memory must be true or false, but is 'no'"),
    ("feature_data.0.name", None, r"feature_data\[0\]\.name is missing; give a string"),
    ("tasks.0.train_set.0.data", [], r"tasks\[0\]\.train_set\[0\]\.data is missing or empty"),
    ("tasks.0.train_set.0.data.1.path", None, r"tasks\[0\]\.train_set\[0\]\.data\[1\]\.path is missing"),
]
WRONG_TYPES: list[tuple[str, Any, str]] = [
    ("graph.edges.0.type", "user:likes", r"graph\.edges\[0\]\.type must be 'source:relation:destination'"),
    ("graph.edges.0.type", "user:likes:shop", r"with types of graph\.nodes, \['user', 'item'\]"),
    ("graph.edges.1.type", "user:likes:item", r"graph\.edges\[1\] occurs twice"),
    ("graph.nodes.1.type", "user", r"graph\.nodes\[1\] occurs twice"),
    ("graph.nodes.1.type", None, r"must all have a type"),
    ("graph.feature_data.0.type", "user:like:item", r"'weight' of domain edge must have types of \['item:liked_by"),
    ("tasks.0.train_set.0.type", None, r"tasks\[0\]\.train_set has several entries, so each needs its own type"),
    ("tasks.0.train_set.0.data.0.name", "labels", r"tasks\[0\]\.train_set must have the same names in every entry"),
    ("feature_data.0.type", "item:liked_by:user", r"feature_data\[1\] occurs twice"),
]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    def parse(data: dict[str, Any]) -> Callable[[], object]:
        return lambda: load(tmp_path, data)

    table: list[Refusal] = []
    for make, wrong in ((on_disk.untyped, WRONG), (on_disk.typed, WRONG_TYPES)):
        for key, value, error in wrong:
            table.append((parse(on_disk.change(make(tmp_path), key, value)), ValueError, error))
    check_refused(table)


def test_files_and_paths_that_are_wrong_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "file").touch()
    (folder / "link").symlink_to(tmp_path)

    def read(text: str) -> object:
        (folder / "metadata.yaml").write_text(text)
        return gf.OnDiskDataset(folder)

    def lead_to(path: str) -> Callable[[], object]:
        return lambda: load(folder, on_disk.change(on_disk.untyped(folder), "graph.edges.0.path", path))

    outside = ["../x.npy", str(tmp_path / "x.npy"), "link/x.npy", "../data-2/x.npy"]
    leads_out = r"graph\.edges\[0\]\.path is .* out of the dataset's folder"
    check_refused([
        (lambda: read("!!python/object/apply:os.getcwd []"), ValueError, "can't be read as YAML"),
        (lambda: read("- a"), ValueError, "the file must be a mapping"),
        (lambda: read(""), ValueError, "the file must be a mapping"),
        (lambda: gf.OnDiskDataset("gone"), FileNotFoundError, "Invalid dataset path: gone"),
        (lambda: gf.OnDiskDataset(tmp_path / "file"), NotADirectoryError, "The dataset must be a directory"),
        *((lead_to(path), ValueError, leads_out) for path in outside),
    ])  # fmt: skip
    load(folder, on_disk.change(on_disk.untyped(folder), "graph.edges.0.path", "opt/../edges/all.npy"))


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> gf.OnDiskDataset:
    """Load the edited metadata."""
    dataset = gf.OnDiskDataset(folder)
    edit(dataset.yaml_data)
    return dataset.load()


def test_edits_that_load_cannot_take_are_named(tmp_path: Path) -> None:
    folder = on_disk.write(tmp_path, on_disk.untyped(tmp_path))
    changed = on_disk.change(on_disk.untyped(folder), "feature_data.0.name", "other")

    def edit_both(data: dict[str, Any]) -> None:
        del data["feature_data"][0]
        on_disk.write(folder, changed)

    check_refused([
        (lambda: edited(folder, lambda data: on_disk.change(data, "graph.nodes.0.num", 5)), ValueError,
         r"yaml_data\['graph'\] was edited, .* edit that file instead"),
        (lambda: edited(folder, lambda data: on_disk.change(data, "feature_data.0.domain", "nodes")), ValueError,
         r"feature_data\[0\]\.domain must be one of node, edge, graph"),
        (lambda: edited(folder, edit_both), ValueError, r"metadata\.yaml has changed since: it names .* open the data"),
    ])  # fmt: skip


def test_a_key_that_is_not_known_gives_a_warning(tmp_path: Path) -> None:
    for key in ("notes", "graph.node", "tasks.0.train_set.0.data.0.in_memry"):
        data = on_disk.change(on_disk.untyped(tmp_path), key, 1)
        with pytest.warns(UserWarning, match=rf"metadata\.yaml: .*{key.split('.')[-1]} is unknown and ignored"):
            load(tmp_path, data)


def test_a_key_that_is_nearly_known_gives_a_warning_also_where_others_are_metadata(tmp_path: Path) -> None:
    for key, close in (
        ("feature_data.0.in_memroy", "in_memory"),
        ("graph.feature_data.0.typ", "type"),
        ("tasks.0.validaton_set", "validation_set"),
        ("tasks.0.train_set.0.data.0.inmemory", "in_memory"),
        ("task", "tasks"),
    ):
        data = on_disk.change(on_disk.untyped(tmp_path), key, 1)
        data.pop(close, None)
        name = key.split(".")[-1]
        with pytest.warns(UserWarning, match=rf"metadata\.yaml: .*{name} is .*; is it a typo of {close}\?"):
            load(tmp_path, data)


def test_other_metadata_gives_no_warning(tmp_path: Path) -> None:
    data = on_disk.untyped(tmp_path)
    data["feature_data"][0] |= {"num_categories": 3, "unit": "m", "names": ["a"], "dtype": "f4"}
    data["tasks"][0] |= {"num_labels": 3, "metric": "acc", "settings": 1}
    assert load(tmp_path, data).feature.metadata("node", None, "feat")["names"] == ["a"]


def test_load_takes_what_was_edited_in_yaml_data(tmp_path: Path) -> None:
    ending = "pt"
    dataset = gf.OnDiskDataset(on_disk.write(tmp_path, on_disk.untyped(tmp_path, ending)))
    data = dataset.yaml_data
    data["dataset_name"] = "edited"
    data["tasks"][0]["num_classes"] = 7
    data["tasks"][0]["train_set"][0]["data"][1]["path"] = on_disk.save(tmp_path, f"other.{ending}", [4, 5])["path"]
    data["tasks"].append({"name": "again", "train_set": data["tasks"][1]["train_set"]})
    features = data["feature_data"]
    del features[1]
    features[0]["name"] = "renamed"
    features.append({**features[0], "name": "new", "path": on_disk.save(tmp_path, f"new.{ending}", [[3]] * 4)["path"]})
    for _ in range(2):  # the second time without further edits
        dataset.load()
        assert dataset.dataset_name == "edited"
        assert set(dataset.feature.keys()) == {("node", None, "renamed"), ("node", None, "new")}
        assert dataset.feature.read("node", None, "renamed", torch.tensor([3])).tolist() == [[6, 7]]
        assert dataset.feature.read("node", None, "new").tolist() == [[3]] * 4
        assert [task.metadata["name"] for task in dataset.tasks] == ["node_classification", "link_prediction", "again"]
        assert dataset.tasks[0].metadata["num_classes"] == 7
        train, again = dataset.tasks[0].train_set, dataset.tasks[2].train_set
        assert isinstance(train, gf.ItemSet)
        assert [item.tolist() for item in train[:]] == [[0, 2], [4, 5]]
        assert isinstance(again, gf.ItemSet)
        assert again[:].dtype == torch.int32
    del dataset.yaml_data["feature_data"][0]
    dataset.yaml_data["graph_topology"] = None
    assert dataset.load().graph is None
    assert list(dataset.feature.keys()) == [("node", None, "new")]


LEVELS = range(1, 40)


def bomb(first: str, use: str) -> str:
    """Return a document in which each line stands for nine copies of the previous line."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{level}: &a{level} {use.format(', '.join([f'*a{level - 1}'] * 9))}" for level in LEVELS]
    return "\n".join([*lines, f"graph: *a{LEVELS[-1]}", ""])


ATTACKS = {
    "aliases": (bomb("[lol]", "[{}]"), "there are more than 100000 values up to line 6"),
    "merged keys": (bomb("{x: lol}", "{{<<: [{}]}}"), "there are more than 100000 values up to line 6"),
    "a value in itself": ("graph: &a [*a]\n", "the value at line 1 contains itself"),
    "levels": ("[" * 10_000, "too many levels"),
    "a number in base 60": ("num: " + "1:" * 400_000 + "1\n", "the value at line 1 has 800001 letters"),
    "a number of many digits": ("num: " + "1" * 400_000 + "\n", "the value at line 1 has 400000 letters"),
    "a large file": ("a: 1\n" * 400_000, "has 2000000 bytes; a description of a dataset has 1048576 at most"),
    "a tag that no text fits": ('a: !!int ""\n', "a value does not fit its tag .IndexError"),
    "a tag that no number fits": ('a: !!float ""\n', "a value does not fit its tag .IndexError"),
    "a tag that no word fits": ("a: !!bool x\n", "a value does not fit its tag .KeyError"),
    "a tag that no date fits": ("a: !!timestamp x\n", "a value does not fit its tag .AttributeError"),
    "no YAML": ("graph: [\n", "can't be read as YAML: while parsing"),
    "no text": ("graph: \x01\n", "can't be read as YAML: unacceptable character"),
}


def test_an_attack_is_refused_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "metadata.yaml"
    for name, (text, message) in ATTACKS.items():
        path.write_text(text)
        start = time.thread_time()
        with pytest.raises(ValueError, match=message) as caught:
            load_yaml(path)
        assert time.thread_time() - start < 5, name
        assert len(str(caught.value)) < 1000, name
    with pytest.raises(ValueError, match=message):
        gf.OnDiskDataset(tmp_path).load()


def test_values_beyond_the_most_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 1 MiB has 350,000 values, whose tree takes PyYAML ten seconds."""
    monkeypatch.setattr(bounded_yaml, "MOST_VALUES", 1000)
    path = tmp_path / "metadata.yaml"
    for text, line in (("[" + "[]," * 345_000 + "]", 1), ("- 1\n" * 250_000, 1000)):
        path.write_text(text)
        start = time.thread_time()
        with pytest.raises(ValueError, match=f"there are more than 1000 values up to line {line}$"):
            load_yaml(path)
        assert time.thread_time() - start < 1
    path.write_text("- 1\n" * 999)
    assert load_yaml(path) == [1] * 999


def test_aliases_and_merged_keys_of_ordinary_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metadata.yaml"
    path.write_text("a: &a {format: numpy, in_memory: true}\nb: {<<: *a, format: torch}\nc: [*a, *a]\nd: 12\n")
    plain = {"format": "numpy", "in_memory": True}
    assert load_yaml(path) == {"a": plain, "b": {**plain, "format": "torch"}, "c": [plain, plain], "d": 12}
