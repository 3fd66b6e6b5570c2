"""Building data sets from tables: their contents, on disk and in memory."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.distributed import open_part
from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset, inspect_dataset
from graphfeed.ops import ALWAYS
from tests.kinds.example_tables import LIKES, SUFFIXES, USERS, edges_of, likes
from tests.kinds.refusals import Refusal, check_refused

LIKED = sorted(zip(LIKES["user"], LIKES["item"], strict=True))


def test_every_format_gives_the_same_data_set(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        dataset = build_dataset(likes(tmp_path, suffix), tmp_path / f"out{suffix}").load()
        assert edges_of(dataset, "user:likes:item") == LIKED, suffix
        assert dataset.graph is not None
        assert dataset.graph.num_nodes == {"item": 3, "user": 4}, suffix
        assert dataset.ids("item")[:] == [5, 7, 9], suffix
        assert dataset.ids("user").find(["cem"]).tolist() == [2], suffix
        assert dataset.feature.read("node", "user", "age").tolist() == [[31], [27], [45], [60]], suffix
        order = dataset.graph.edge_attributes["time"].tolist()
        assert order == [2, 5, 1, 3, 4], suffix  # by destination, and then as in the table


def test_edge_features_are_those_of_the_sampled_edges(tmp_path: Path) -> None:
    source, destination = np.array([0, 1, 2, 3, 0]), np.array([3, 0, 0, 1, 2])
    table = {"s": source, "d": destination, "code": 10 * source + destination}
    spec = Spec({"edge": EdgeTable(table, source="s", destination="d", features={"code": "code"})})
    dataset = build_dataset(spec, tmp_path / "out").load()
    graph = dataset.graph
    assert graph is not None
    assert graph.num_nodes == 4
    assert dataset.all_nodes_set is not None
    pipe: gf.Datapipe = gf.ItemSampler(dataset.all_nodes_set, batch_size=4).sample_neighbor(graph, fanouts=[-1])
    pipe = pipe.fetch_feature(dataset.feature, edge_feature_keys=["code"])
    (batch,) = pipe
    layer = batch.sampled_subgraphs[0]
    columns = torch.arange(4).repeat_interleave(layer.sampled_csc.indptr.diff())
    ends = layer.original_row_node_ids[layer.sampled_csc.indices] * 10 + layer.original_column_node_ids[columns]
    assert batch.edge_features[0]["code"][:, 0].tolist() == ends.tolist()


def test_labels_splits_and_times_are_items_of_tasks(tmp_path: Path) -> None:
    users = {**USERS, "kind": ["z", None, "b", "z"], "since": [4, 3, 2, 1]}
    split = Split("split", train="0", validation="1", test="2")
    edges = {**LIKES, "for_training": [True, False, True, True, False]}
    spec = Spec(
        {
            "user:likes:item": EdgeTable(
                edges, source="user", destination="item", split=Split(train="for_training"), label="at"
            )
        },
        {"user": NodeTable(users, id="name", label="kind", time="since"), "item": NodeTable(count=10, time=0)},
    )
    nodes, links = build_dataset(spec).tasks
    assert nodes.metadata == {"name": "node_classification", "num_classes": 2, "class_names": ["b", "z"]}
    items: Any = nodes.train_set
    assert [part.tolist() for part in items[:]["user"]] == [[0, 2, 3], [4, 2, 1], [1, 0, 1]]
    assert links.metadata["name"] == "edge_classification"
    pairs: Any = links.train_set
    assert [part.tolist() for part in pairs[:]["user:likes:item"]] == [[[3, 7], [1, 7], [3, 9]], [1, 3, 4]]
    table = NodeTable(users, id="name", label="kind", split=split)
    knows = EdgeTable(LIKES, source="user", destination="user")
    unlabelled = build_dataset(Spec({"user:knows:user": knows}, {"user": table}))
    assert unlabelled.yaml_data["skipped"] == [
        {
            "file": "frame 0",
            "reason": "kind is missing, so they are not items of train",
            "rows": 1,
            "first": "row 1: kind is missing",
        }
    ]


def test_frames_give_a_data_set_in_memory_and_no_files() -> None:
    libraries = [import_module(name).DataFrame for name in ("pandas", "polars") if find_spec(name)]
    for make in (pa.table, dict, *libraries):
        own: Any = make
        users = NodeTable(own({key: np.array(part) for key, part in USERS.items()}), id="name", features={"age": "age"})
        edges = EdgeTable(own({key: np.array(part) for key, part in LIKES.items()}), source="user", destination="item")
        dataset = build_dataset(Spec({"user:likes:item": edges}, {"user": users}))
        assert edges_of(dataset, "user:likes:item") == LIKED, make
        assert not Path(str(dataset)[len("OnDiskDataset('") : -2]).exists(), make
        assert isinstance(dataset.feature[("node", "user", "age")], gf.TorchBasedFeature), make


def test_what_lies_on_disk_is_mapped_or_read_as_asked(tmp_path: Path) -> None:
    build_dataset(likes(tmp_path), tmp_path / "out")
    mapped = gf.OnDiskDataset(tmp_path / "out").load()
    assert isinstance(mapped.feature[("node", "user", "age")], gf.DiskBasedFeature)
    assert mapped.graph is not None
    assert is_mapped(tmp_path / "out", "indices.npy")
    mapped.graph.indices[0] = 4
    del mapped
    whole = gf.OnDiskDataset(tmp_path / "out")
    for entry in [*whole.yaml_data["feature_data"], whole.yaml_data["graph_topology"]]:
        entry["in_memory"] = True
    whole.load()
    assert isinstance(whole.feature[("node", "user", "age")], gf.TorchBasedFeature)
    assert edges_of(whole, "user:likes:item") == LIKED
    assert not is_mapped(tmp_path / "out", "indices.npy")


def is_mapped(folder: Path, name: str) -> bool:
    """Return whether this process maps a file of a name in a folder."""
    return any(str(folder) in line and name in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_the_result_can_be_partitioned_and_has_checksums(tmp_path: Path) -> None:
    dataset = build_dataset(likes(tmp_path), tmp_path / "out")
    made = tmp_path / "out" / "graphfeed"
    assert list(dataset.yaml_data["checksums"]) == [str(path.relative_to(made)) for path in sorted(made.rglob("*.npy"))]
    assert inspect_dataset(tmp_path / "out").damaged == []
    assert main(["partition", str(tmp_path / "out"), str(tmp_path / "parts"), "--parts", "2"]) == 0
    assert open_part(tmp_path / "parts", 1).graph.book.num_parts == 2


def test_types_without_weights_weigh_1_and_those_without_times_are_always_there() -> None:
    table = {"s": np.array([0, 1]), "d": np.array([0, 0]), "w": np.array([3.0, 2.0]), "at": np.array([7, 5])}
    edges = {
        "a:r:b": EdgeTable(table, source="s", destination="d", weight="w", time="at"),
        "b:q:b": EdgeTable(table, source="s", destination="d"),
    }
    nodes = {"a": NodeTable(table, id="s", time="at"), "b": NodeTable(count=2)}
    graph = build_dataset(Spec(edges, nodes)).graph
    assert graph is not None
    assert graph.edge_attributes["weight"].tolist() == [3, 2, 1, 1]
    assert graph.edge_attributes["time"].tolist() == [7, 5, ALWAYS, ALWAYS]
    assert graph.node_attributes["time"].tolist() == [7, 5, ALWAYS, ALWAYS]


def test_other_arguments_are_refused() -> None:
    table = {"s": np.array([0]), "d": np.array([0]), "w": np.array([1.0])}
    edges = {
        "a:r:a": EdgeTable(table, source="s", destination="d", weight="w"),
        "a:q:a": EdgeTable(table, source="s", destination="d", weight=2),
    }
    graph = build_dataset(Spec(edges)).graph
    assert graph is not None
    assert graph.edge_attributes["weight"].tolist() == [2, 1]
    own: Any = "no"
    refused: list[Refusal] = [
        (lambda: build_dataset(Spec(edges), memory=5), ValueError, "memory must be at least 16777216 bytes, but is 5"),
        (lambda: build_dataset(Spec(edges), on_error=own), ValueError,
         "on_error must be 'raise' or 'skip', but is 'no"),
    ]  # fmt: skip
    check_refused(refused)
