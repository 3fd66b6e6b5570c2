from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.datasets import reorder, reorder_dataset
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ends_of, to_coo, to_type_dict
from tests import on_disk

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
