"""Edits of `yaml_data` before a data set is loaded: what `load` takes, and what it refuses."""

from pathlib import Path

import pytest
import torch

import graphfeed as gf
from tests import on_disk


@pytest.mark.parametrize("ending", ["npy", "pt"])
def test_load_takes_what_was_edited_in_yaml_data(tmp_path: Path, ending: str) -> None:
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


def test_edits_that_load_cannot_take_are_named(tmp_path: Path) -> None:
    folder = on_disk.write(tmp_path, on_disk.untyped(tmp_path))
    dataset = gf.OnDiskDataset(folder)
    dataset.yaml_data["graph"]["nodes"][0]["num"] = 5
    with pytest.raises(ValueError, match=r"yaml_data\['graph'\] was edited, .* edit that file instead"):
        dataset.load()
    dataset = gf.OnDiskDataset(folder)
    dataset.yaml_data["feature_data"][0]["domain"] = "nodes"
    with pytest.raises(ValueError, match=r"feature_data\[0\]\.domain must be one of node, edge, graph"):
        dataset.load()
    dataset = gf.OnDiskDataset(folder)
    del dataset.yaml_data["feature_data"][0]
    on_disk.write(folder, on_disk.change(on_disk.untyped(folder), "feature_data.0.name", "other"))
    with pytest.raises(ValueError, match=r"metadata\.yaml has changed since: it names .* open the data set again"):
        dataset.load()
