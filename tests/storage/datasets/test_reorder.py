"""Data sets under other ids, which name the nodes that they had; and these ids themselves."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, Spec, build_dataset, inspect_dataset
from graphfeed.storage.datasets import original_ids, reorder, reorder_dataset
from graphfeed.storage.datasets.original_ids import OriginalIds, read_ids, write_ids, write_reordered_ids
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ends_of, to_coo, to_type_dict
from tests import on_disk
from tests.refusals import check_refused

each_order = pytest.mark.parametrize("by", reorder.ORDERS)
LITTLE = 64
"""Bytes: edges and rows are sorted in many parts."""


def edges_by_id(dataset: gf.OnDiskDataset) -> dict[str | None, list[tuple[Any, ...]]]:
    """Return source and destination, by original ids, with edge id and weight of each edge, by edge type."""
    found = {}
    graph = dataset.graph
    for edge_type, coo in to_type_dict(to_coo(graph)).items():
        source, destination = ends_of(edge_type)
        ids = graph.edge_attribute(ORIGINAL_EDGE_ID)[coo.positions].tolist()
        weights = graph.edge_attribute("weight")[coo.positions].tolist()
        ends = dataset.ids(source)[coo.sources], dataset.ids(destination)[coo.destinations]
        found[edge_type] = sorted(zip(*ends, ids, weights, strict=True))
    return found


def rows_by_id(dataset: gf.OnDiskDataset, node_type: str | None, name: str) -> list[Any]:
    """Return the rows of a feature in the order of the original ids."""
    ids = dataset.ids(node_type)
    rows = dataset.feature.read("node", node_type, name, ids.find(sorted(ids)))
    return rows.tolist()


def write_untyped(folder: Path, num_nodes: int = 300) -> Path:
    """Write a data set without types, of many nodes."""
    chance = np.random.default_rng(0)
    ends = chance.integers(0, num_nodes, (2, 5 * num_nodes))
    ends[0] = ends[0] ** 2 // num_nodes
    data = on_disk.untyped(folder)
    data["graph"]["nodes"] = [{"num": num_nodes}]
    data["graph"]["edges"] = [on_disk.save(folder, "edges.npy", ends)]
    rows = {"edge": np.arange(ends.shape[1]) * 3.0, "node": np.arange(num_nodes) * 7}
    for entry in data["graph"]["feature_data"]:
        entry |= on_disk.save(folder, f"{entry['name']}.npy", rows[entry["domain"]])
    for entry in data["feature_data"]:
        entry |= on_disk.save(folder, f"{entry['name']}_of_{entry['domain']}.npy", rows[entry["domain"]][:, None] + 1)
    return on_disk.write(folder, data)


@each_order
def test_nodes_edges_rows_and_seeds_are_the_same_under_other_ids(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder, "PART_NODES", 20)
    (tmp_path / "old").mkdir()
    old = gf.OnDiskDataset(write_untyped(tmp_path / "old")).load()
    new = reorder_dataset(tmp_path / "old", tmp_path / "new", by, memory=LITTLE).load()
    new.graph.check()
    assert list(new.ids()) != sorted(new.ids()) == list(old.ids())
    assert edges_by_id(new) == edges_by_id(old)
    assert rows_by_id(new, None, "feat") == rows_by_id(old, None, "feat")
    assert new.feature.read("edge", None, "row").tolist() == old.feature.read("edge", None, "row").tolist()
    assert new.graph.node_attribute("age").tolist() == old.graph.node_attribute("age")[new.ids()[:]].tolist()
    for task, before in zip(new.tasks, old.tasks, strict=True):
        assert task.metadata == before.metadata
        seeds = task.train_set[:]
        (ids, *labels), (ids_before, *labels_before) = (
            items if isinstance(items, tuple) else (items,) for items in (seeds, before.train_set[:])
        )
        assert new.ids()[ids.flatten()] == ids_before.flatten().tolist()
        assert [label.tolist() for label in labels] == [label.tolist() for label in labels_before]
    assert isinstance(new.feature["node", None, "feat"], gf.DiskBasedFeature)


@each_order
def test_types_stay_apart(tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "PART_NODES", 2)
    (tmp_path / "old").mkdir()
    old = gf.OnDiskDataset(on_disk.write(tmp_path / "old", on_disk.typed(tmp_path / "old"))).load()
    new = reorder_dataset(tmp_path / "old", tmp_path / "new", by, memory=LITTLE).load()
    new.graph.check()
    assert (new.graph.num_nodes, new.graph.num_edges) == (old.graph.num_nodes, old.graph.num_edges)
    assert new.graph.edge_type_to_id == old.graph.edge_type_to_id
    assert edges_by_id(new) == edges_by_id(old)
    for node_type in ("user", "item"):
        assert rows_by_id(new, node_type, "feat") == rows_by_id(old, node_type, "feat")
        seeds, before = (dataset.tasks[0].train_set[:][node_type] for dataset in (new, old))
        assert new.ids(node_type)[seeds] == before.tolist()
    pairs = new.tasks[0].validation_set[:]["user:likes:item"]
    assert [new.ids("user")[pairs[:, 0]], new.ids("item")[pairs[:, 1]]] == [[3, 0], [2, 1]]


def test_edges_that_were_known_by_their_positions_keep_these_as_ids(tmp_path: Path) -> None:
    gf.fused_csc_sampling_graph(torch.tensor([0, 1, 3, 3]), torch.tensor([2, 2, 1])).save(tmp_path / "graph")
    row = {"domain": "edge", "name": "row", **on_disk.save(tmp_path, "row.npy", [[0], [1], [2]])}
    topology = {"type": "FusedCSCSamplingGraph", "path": "graph"}
    on_disk.write(tmp_path, {"graph_topology": topology, "feature_data": [row]})
    new = reorder_dataset(tmp_path, tmp_path / "new", "met").load()
    assert new.yaml_data["include_original_edge_id"] is True
    assert new.ids()[:] == [2, 1, 0]
    assert new.graph.indices.tolist() == [0, 1, 0]
    assert new.graph.edge_attribute(ORIGINAL_EDGE_ID).tolist() == [1, 2, 0]
    assert new.feature.read("edge", None, "row").tolist() == [[0], [1], [2]]


def test_a_data_set_that_was_reordered_keeps_the_first_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "PART_NODES", 20)
    (tmp_path / "old").mkdir()
    old = gf.OnDiskDataset(write_untyped(tmp_path / "old")).load()
    reorder_dataset(tmp_path / "old", tmp_path / "new", "met")
    again = reorder_dataset(tmp_path / "new", tmp_path / "again", "part").load()
    assert edges_by_id(again) == edges_by_id(old)
    assert rows_by_id(again, None, "feat") == rows_by_id(old, None, "feat")
    reorder_dataset(tmp_path / "new", tmp_path / "same", "part")
    written = [on_disk.arrays(tmp_path / name) for name in ("again", "same")]
    assert written[0].keys() == written[1].keys()
    assert all(np.array_equal(written[0][name], written[1][name]) for name in written[0])


def test_sources_of_most_edges_come_first() -> None:
    graph = gf.from_coo(([3, 3, 3, 1, 1, 0], [0, 1, 2, 0, 2, 3]), num_nodes=5)
    assert reorder.order_nodes(graph, "met").tolist() == [3, 1, 0, 2, 4]


def test_neighbours_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "PART_NODES", 10)
    first, second = torch.nonzero(torch.arange(30)[:, None] % 3 == torch.arange(30) % 3).T  # three cliques
    order = reorder.order_nodes(gf.from_coo((first, second), num_nodes=30), "part")
    assert sorted(len(set(order[start : start + 10] % 3)) for start in (0, 10, 20)) == [1, 1, 1]


def test_what_can_not_be_done_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    data = on_disk.untyped(old)
    on_disk.write(old, on_disk.change(data, "tasks.1.train_set.0.data.0.name", "node_pairs"))
    with pytest.raises(ValueError, match=r"tasks\[1\].train_set has node_pairs, a name .* use seeds"):
        reorder_dataset(old, tmp_path / "new")
    with pytest.raises(ValueError, match=r"by must be one of \['part', 'met'\], but is 'hot'"):
        reorder_dataset(old, tmp_path / "new", "hot")
    with pytest.raises(FileExistsError, match="not an empty folder"):
        reorder_dataset(old, old)
    assert on_disk.listing(tmp_path) == ["old"]


TEXTS = ["anne", "", "Jürgen", "x"]


def texts() -> OriginalIds:
    parts = [text.encode() for text in TEXTS]
    offsets = np.cumsum([0, *map(len, parts)])
    return OriginalIds(np.frombuffer(b"".join(parts), dtype=np.uint8), offsets)


def test_ids_of_nodes_are_found_both_ways() -> None:
    ids = texts()
    assert len(ids) == 4
    assert list(ids) == TEXTS
    assert (ids[2], ids[-1], ids[torch.tensor(0)]) == ("Jürgen", "x", "anne")
    assert ids[1:3] == TEXTS[1:3]
    assert ids[torch.tensor([3, 0], dtype=torch.int32)] == ids[[3, 0]] == ["x", "anne"]
    assert ids.find(["x", "anne"]).tolist() == [3, 0]
    numbers = OriginalIds(np.array([30, 10, 20]))
    assert numbers[[1, 0]] == [10, 30]
    assert numbers.find([20]).tolist() == [2]
    assert repr(numbers) == "OriginalIds(3 integers)"


def test_they_are_the_same_from_files(tmp_path: Path) -> None:
    offsets = np.array([0, 2, 3])
    files = write_ids(tmp_path, "ids", np.frombuffer(b"abc", dtype=np.uint8), offsets)
    for in_memory in (True, False):
        assert read_ids(tmp_path, files, "ids.a", in_memory)[:] == ["ab", "c"]


def test_ids_are_written_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_ids, "PART_BYTES", 3)
    kinds = (texts(), OriginalIds(np.array([30, 10, 20, 5])), OriginalIds(range(4)))
    for ids, order in product(kinds, ([3, 1, 0, 2], [2, 3, 1, 0])):
        files = write_reordered_ids(tmp_path, "ids", ids, np.array(order))
        for in_memory in (True, False):
            assert list(read_ids(tmp_path, files, "ids", in_memory)) == [ids[node] for node in order]


def test_metadata_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    edges = EdgeTable({"s": np.array(["a"]), "d": np.array(["b"])}, source="s", destination="d")
    build_dataset(Spec({"n:r:n": edges}), tmp_path / "out")
    path = tmp_path / "out" / "graphfeed" / "metadata.yaml"
    data = yaml.safe_load(path.read_text())
    for key in ("ids", "graph_topology", "skipped"):
        path.write_text(yaml.safe_dump({**data, key: "some text"}))
        with pytest.raises(ValueError, match=rf"metadata\.yaml: {key} must be a (mapping|list), but is 'some text'"):
            inspect_dataset(tmp_path / "out")


def test_the_ids_of_nodes_without_others_are_their_numbers() -> None:
    ids = OriginalIds(range(3))
    assert len(ids) == 3
    assert list(ids) == ids[:] == [0, 1, 2]
    assert (ids[-1], ids[torch.tensor([2, 0])]) == (2, [2, 0])
    assert ids.find(np.array([2, 1])).tolist() == [2, 1]
    assert repr(ids) == "OriginalIds(3 integers)"


def test_ids_and_nodes_that_are_not_there_are_named(tmp_path: Path) -> None:
    ids, numbers = texts(), OriginalIds(range(3))
    no_files: list[Any] = [None, {}, {"values": "a.npy", "more": "b.npy"}, {"values": "../a.npy"}]
    for files in no_files:
        with pytest.raises(ValueError, match=r"ids\.a"):
            read_ids(tmp_path, files, "ids.a", True)
    three = np.zeros(3, dtype=np.uint8)
    check_refused([
        (lambda: ids[4], IndexError, "there is no node 4; there are 4"),
        (lambda: ids[-5], IndexError, "there is no node -5; there are 4"),
        (lambda: ids[torch.tensor([4])], IndexError, "nodes"),
        (lambda: numbers[3], IndexError, "there is no node 3"),
        (lambda: ids.find(["bob"]), KeyError, "no node had the id 'bob'"),
        (lambda: numbers.find([3]), KeyError, "no node had the id"),
        (lambda: numbers.find([-1]), KeyError, "no node had the id"),
        (lambda: numbers.find(["1"]), KeyError, "no node had the id"),
        (lambda: OriginalIds(np.array([7, 3, 7, 7])).find([3, 7]), KeyError, "several nodes had the id 7"),
        (lambda: OriginalIds(np.zeros(3)), ValueError, "must be integers or bytes, but are float64"),
        (lambda: OriginalIds(three, np.zeros(3)), ValueError, "the offsets of ids must be int64, but are float64"),
        (lambda: OriginalIds(three, np.array([2, 9]))[0], ValueError, r"the id of node 0 lies at 2 to 9 of 3 bytes"),
    ])  # fmt: skip


def test_it_writes_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    on_disk.write(tmp_path / "old", on_disk.untyped(tmp_path / "old"))
    arguments = ["reorder", str(tmp_path / "old"), "-o", str(tmp_path / "new"), "--by", "met", "--memory", "1M"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'new'}; its `ids` are those that nodes had before\n"
    assert list(gf.OnDiskDataset(tmp_path / "new").load().ids()) == [0, 3, 1, 2]
    assert main(arguments) == 1
    assert "is not an empty folder" in capsys.readouterr().err
