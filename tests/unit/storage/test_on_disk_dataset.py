"""Datasets on disk: what is loaded, in which formats and from which programs, and what is rejected."""

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import graphfeed as gf
from tests.kinds import on_disk
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return on_disk.write(tmp_path, on_disk.untyped(tmp_path))


def test_nothing_happens_before_load(folder: Path) -> None:
    names = on_disk.listing(folder)
    dataset = gf.OnDiskDataset(folder)
    assert dataset.dataset_name == "small"
    assert dataset.yaml_data["graph"]["nodes"] == [{"num": 4}]
    assert on_disk.listing(folder) == names
    for name in ("tasks", "graph", "feature", "all_nodes_set"):
        with pytest.raises(RuntimeError, match=r"is not loaded yet; call its load\(\) first"):
            getattr(dataset, name)


def test_without_types(tmp_path: Path) -> None:
    for ending, edges in (("npy", "npy"), ("pt", "csv"), ("npy", "pt")):
        folder = tmp_path / edges
        folder.mkdir()
        dataset = gf.OnDiskDataset(on_disk.write(folder, on_disk.untyped(folder, ending, edges)))
        assert dataset.load() is dataset
        assert dataset.feature.read("node", None, "feat", torch.tensor([3])).tolist() == [[6, 7]]
        assert dataset.feature.metadata("node", None, "feat") == {"num_categories": 5}
        assert dataset.feature.read("edge", None, "row").tolist() == [[row] for row in range(6)]
        first, second = dataset.tasks
        assert first.metadata == {"name": "node_classification", "num_classes": 2}
        assert first.train_set is not None
        assert first.train_set.names == ("seeds", "labels")
        assert [[int(part) for part in item] for item in first.train_set] == [[0, 1], [2, 0]]
        assert first.validation_set is None
        assert isinstance(second.train_set, gf.ItemSet)
        assert second.train_set[0].tolist() == [0, 1]
        nodes, graph = dataset.all_nodes_set, dataset.graph
        assert isinstance(nodes, gf.ItemSet)
        assert graph is not None
        assert nodes[torch.arange(4)].dtype == graph.indices.dtype == torch.int32


def test_with_types(tmp_path: Path) -> None:
    dataset = gf.OnDiskDataset(on_disk.write(tmp_path, on_disk.typed(tmp_path))).load()
    nodes = dataset.all_nodes_set
    assert isinstance(nodes, gf.HeteroItemSet)
    assert {kind: len(rows) for kind, rows in nodes[:].items()} == {"item": 3, "user": 4}
    assert dataset.feature.count("node", "item", "feat") == 3
    train = dataset.tasks[0].train_set
    assert isinstance(train, gf.HeteroItemSet)
    assert dataset.tasks[0].validation_set is not None
    assert dataset.tasks[0].validation_set[0]["user:likes:item"].tolist() == [3, 2]


def test_a_relative_path_and_several_loads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    dataset = gf.OnDiskDataset(folder.name)
    monkeypatch.chdir("/")
    for _ in range(2):
        dataset.load()
        assert len(dataset.tasks) == 2
        assert dataset.ids()[3] == dataset.ids(None)[3] == 3
        assert dataset.feature.count("node", None, "feat") == 4


def test_sampled_edges_have_their_own_weights_and_features(folder: Path) -> None:
    """Only one row has weight, so it is the edge that is drawn for its destination, wherever it is stored."""
    for row in (0, 3, 5):
        np.save(folder / "opt" / "weight.npy", np.eye(6)[row])
        dataset = gf.OnDiskDataset(folder, force_preprocess=True).load()
        assert dataset.graph is not None
        assert dataset.all_nodes_set is not None
        pipe: Any = gf.ItemSampler(dataset.all_nodes_set, batch_size=4)
        pipe = pipe.sample_neighbor(dataset.graph, fanouts=[-1], prob_name="weight")
        pipe = pipe.fetch_feature(dataset.feature, node_feature_keys=["feat"], edge_feature_keys=["row"])
        (batch,) = pipe
        subgraph = batch.sampled_subgraphs[0]
        assert subgraph.original_edge_ids.tolist() == [row]
        assert batch.edge_features[0]["row"].tolist() == [[row]]
        degrees = subgraph.sampled_csc.indptr.diff()
        assert subgraph.original_column_node_ids[degrees > 0].tolist() == [on_disk.DESTINATIONS[row]]
        source = subgraph.original_row_node_ids[subgraph.sampled_csc.indices]
        assert source.tolist() == [on_disk.SOURCES[row]]


@pytest.mark.parametrize(
    ("edges", "auto_cast"),
    [("pt", False), pytest.param("csv", True, marks=pytest.mark.slow)],  # 32-bit ids
)
def test_pairs_of_a_task_are_sampled_whatever_the_format_and_the_dtype(
    tmp_path: Path, edges: str, auto_cast: bool
) -> None:
    on_disk.write(tmp_path, on_disk.typed(tmp_path, edges))
    dataset = gf.OnDiskDataset(tmp_path, auto_cast_to_optimal_dtype=auto_cast).load()
    assert dataset.graph is not None
    assert dataset.graph.indices.dtype == (torch.int32 if auto_cast else torch.int64)
    pairs = dataset.tasks[0].validation_set
    assert pairs is not None
    pipe: gf.Datapipe = gf.ItemSampler(pairs, batch_size=2)
    pipe = pipe.sample_uniform_negative(dataset.graph, 2).sample_neighbor(dataset.graph, [-1])
    keys = {kind: ["weight"] for kind in on_disk.TYPED_EDGES}
    pipe = pipe.exclude_seed_edges().fetch_feature(dataset.feature, {"user": ["feat"], "item": ["feat"]}, keys)
    (batch,) = pipe
    assert batch.seeds["user:likes:item"][:2].tolist() == [[3, 2], [0, 1]]
    assert batch.labels["user:likes:item"].tolist() == [1, 1, 0, 0, 0, 0]
    (layer,) = batch.sampled_subgraphs
    for place, (kind, (sources, destinations)) in enumerate(on_disk.TYPED_EDGES.items()):
        source, _, destination = kind.split(":")
        csc, rows = layer.sampled_csc[kind], layer.original_edge_ids[kind].tolist()
        found = layer.original_row_node_ids[source][csc.indices].tolist()
        ends = layer.original_column_node_ids[destination].repeat_interleave(csc.indptr.diff()).tolist()
        assert (found, ends) == ([sources[row] for row in rows], [destinations[row] for row in rows])
        assert batch.edge_features[0][kind, "weight"].flatten().tolist() == [100 * place + row for row in rows]
    assert batch.node_features["item", "feat"].flatten().tolist() == batch.input_nodes["item"].tolist()
    assert {(3, 2), (0, 1)}.isdisjoint(
        (on_disk.TYPED_EDGES["user:likes:item"][0][row], on_disk.TYPED_EDGES["user:likes:item"][1][row])
        for row in layer.original_edge_ids["user:likes:item"].tolist()
    )


def test_features_may_stay_on_disk(folder: Path) -> None:
    for in_memory, kind in ((True, gf.TorchBasedFeature), (False, gf.DiskBasedFeature)):
        data = on_disk.change(on_disk.untyped(folder), "feature_data.1.in_memory", in_memory)
        dataset = gf.OnDiskDataset(on_disk.write(folder, data)).load()
        assert isinstance(dataset.feature["edge", None, "row"], kind)
        dataset.yaml_data["feature_data"][1]["in_memory"] = not in_memory
        assert not isinstance(dataset.load().feature["edge", None, "row"], kind)


def test_tasks_are_chosen_by_name(folder: Path) -> None:
    dataset = gf.OnDiskDataset(folder)
    assert [task.metadata["name"] for task in dataset.load("link_prediction").tasks] == ["link_prediction"]
    assert len(dataset.load(["link_prediction", "node_classification"]).tasks) == 2
    with pytest.warns(UserWarning, match=r"Below tasks are not found in YAML: \['other'\]. Skipped."):
        assert dataset.load(["other"]).tasks == []


def by_graphbolt(folder: Path) -> dict[str, Any]:
    """Write the files that GraphBolt leaves: a pickled graph, arrays, and their metadata.yaml."""
    made = "preprocessed"
    feature = on_disk.save(folder, f"{made}/feat.npy", np.eye(3))
    seeds = on_disk.save(folder, f"{made}/seeds.npy", np.arange(3, dtype=np.int32))
    torch.save(Fraction(1, 3), folder / made / "graph.pt")
    data = {
        "dataset_name": "old",
        "graph_topology": {"type": "FusedCSCSamplingGraph", "path": f"{made}/graph.pt"},
        "feature_data": [{"domain": "node", "type": None, "name": "feat", "in_memory": False, **feature}],
        "tasks": [{"name": "t", "train_set": [{"type": None, "data": [{"name": "seeds", **seeds}]}]}],
        "include_original_edge_id": False,
    }
    on_disk.write(folder / made, data)
    return data


def test_what_graphbolt_made_is_read_but_for_pickles(tmp_path: Path) -> None:
    data = by_graphbolt(tmp_path)
    dataset = gf.OnDiskDataset(tmp_path).load()
    assert dataset.dataset_name == "old"
    assert isinstance(dataset.feature["node", None, "feat"], gf.DiskBasedFeature)
    assert dataset.tasks[0].train_set is not None
    assert len(dataset.tasks[0].train_set) == 3
    for name in ("graph", "all_nodes_set"):
        with pytest.raises(ValueError, match=r"holds no graph that can be read: .* preprocess again"):
            getattr(dataset, name)
    del data["graph_topology"]
    on_disk.write(tmp_path / "preprocessed", data)
    dataset = gf.OnDiskDataset(tmp_path).load()
    assert dataset.graph is None
    with pytest.warns(UserWarning, match="the dataset has no graph"):
        assert dataset.all_nodes_set is None


@pytest.mark.since_torch("2.6")
def test_a_graph_that_graphfeed_wrote_may_be_named(tmp_path: Path) -> None:
    edges = {"user:likes:item": torch.tensor([[0, 1, 1], [1, 2, 0]]), "item:in:user": torch.tensor([[0], [1]])}
    weights = {"user:likes:item": torch.tensor([1.0, 2.0, 3.0]), "item:in:user": torch.tensor([4.0])}
    graph = gf.from_coo(edges, {"user": 2, "item": 3}, edge_attributes={"w": weights})
    saves: list[Any] = [torch.save, lambda graph, path: graph.save(path)]
    for number, (where, save) in enumerate(product(["preprocessed", "."], saves)):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = by_graphbolt(folder)
        save(graph, folder / "preprocessed" / "graph.pt")
        (folder / "preprocessed" / "metadata.yaml").unlink()
        on_disk.write(folder / where, data)
        read = gf.OnDiskDataset(folder).load().graph
        assert read is not None
        assert read.num_edges == graph.num_edges
        assert_same(dict(read.edge_attributes), dict(graph.edge_attributes))
        assert_same([read.csc_indptr, read.indices], [graph.csc_indptr, graph.indices])


@pytest.mark.since_torch("2.6")
def test_items_may_be_arrays_that_torch_saved(folder: Path) -> None:
    for ids in (np.array([2, 0]), np.array([[0, 1], [3, 2]], order="F", dtype=">i4")):
        torch.save(ids, folder / "ids.pt")
        data = on_disk.change(on_disk.untyped(folder), "tasks.0.test_set.0.data.0", {"name": "labels"})
        data["tasks"][0]["test_set"][0]["data"][0] |= {"path": "ids.pt", "format": "torch"}
        test = gf.OnDiskDataset(on_disk.write(folder, data)).load().tasks[0].test_set
        assert isinstance(test, gf.ItemSet)
        assert test[:].tolist() == ids.tolist()


def test_other_objects_that_torch_saved_are_refused(folder: Path) -> None:
    data = on_disk.change(on_disk.untyped(folder), "tasks.0.test_set.0.data.0.format", "torch")
    on_disk.write(folder, data)
    others: list[Any] = [np.array(["a"]), np.array([None]), np.zeros(1, dtype="i4,f4"), {"a": 1}]
    for other in others:
        torch.save(other, folder / "set" / "test.npy")
        with pytest.raises(ValueError, match=r"tasks\[0\]\.test_set\[0\]\.data\[0\]: .*test\.npy"):
            gf.OnDiskDataset(folder).load()


def test_the_processed_folder_is_enough_and_goes_before_what_graphbolt_made(folder: Path) -> None:
    by_graphbolt(folder)
    assert gf.OnDiskDataset(folder).load().dataset_name == "small"
    for name in ("metadata.yaml", "edges/all.npy"):
        (folder / name).unlink()
    graph = gf.OnDiskDataset(folder).load().graph
    assert graph is not None
    assert graph.total_num_edges == 6
    (folder / "graphfeed").rename(folder / "away")
    assert gf.OnDiskDataset(folder).load().dataset_name == "old"


def test_data_sets_that_are_none_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "old").mkdir()
    other_type = on_disk.change(by_graphbolt(tmp_path / "old"), "graph_topology.type", "CSCGraph")
    on_disk.write(tmp_path / "old" / "preprocessed", other_type)
    ids = gf.OnDiskDataset(folder).load()
    path = folder / "graphfeed" / "metadata.yaml"
    path.write_text(yaml.safe_dump(on_disk.change(yaml.safe_load(path.read_text()), "graph_topology.path", "..")))
    task: Any = gf.Task
    selected: Any = 3
    check_refused([
        (lambda: ids.ids("page"), KeyError, "there is no node type 'page'; the graph has no types; leave it out"),
        (lambda: gf.OnDiskDataset(tmp_path / "gone"), FileNotFoundError, "Invalid dataset path"),
        (lambda: gf.OnDiskDataset(tmp_path / "empty"), FileNotFoundError, r"metadata\.yaml does not exist in"),
        (lambda: gf.OnDiskDataset(tmp_path / "old"), ValueError, r"type must be one of Fused.*, but is 'CSCGraph'"),
        (lambda: gf.OnDiskDataset(folder).load(), ValueError, r"graph_topology\.path is '\.\.', which leads to"),
        (lambda: gf.OnDiskDataset(folder).load(selected), TypeError, "selected_task should be list, but got int"),
        (lambda: task(), TypeError, "abstract"),
    ])  # fmt: skip


def test_metadata_that_lie_outside_of_the_folder_are_not_shown(folder: Path, disk_path: Path) -> None:
    gf.OnDiskDataset(folder).load()
    (disk_path / "secret").write_text("password")
    for name in ("graphfeed/metadata.yaml", "metadata.yaml"):
        (folder / name).unlink()
        (folder / name).symlink_to(disk_path / "secret")
        with pytest.raises(ValueError, match=rf"its own path is '{name}', which leads to .*secret, out of") as caught:
            gf.OnDiskDataset(folder).load()
        assert "password" not in str(caught.value)
