"""Tests of the metadata of a partition, and of parts that are read from files."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedGraph,
    Partitioner,
    Peers,
    StoredPart,
    assign_nodes,
    cut_graph,
    open_part,
    report_partition,
    write_partition,
)
from graphfeed.storage.graph import stacked_assignment
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_all_refused, check_refused

each_graph = pytest.mark.parametrize("make", [graphs.plain, graphs.typed])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(graph: gf.FusedCSCSamplingGraph, num_parts: int, empty: int = 0) -> Path:
        parts = assign_nodes(graph, num_parts, "hash")
        return write_partition(tmp_path / "parts", graph, parts, num_parts + empty, graphs.codes_of(graph))

    return write


def epoch(graph: gf.SamplingGraph, features: gf.FeatureStore) -> list[gf.MiniBatch]:
    """Return the mini-batches of an epoch, with all features."""
    sizes: Any = graph.num_nodes
    typed = isinstance(sizes, dict)
    items: Any = gf.ItemSet(sizes["user"] if typed else sizes, names="seeds")
    pipe = gf.ItemSampler(gf.HeteroItemSet({"user": items}) if typed else items, 45, shuffle=True)
    names: Any = {kind: list(graphs.FEATURES) for kind in sizes} if typed else list(graphs.FEATURES)
    edges: Any = {"user:likes:item": ["e"]} if typed else ["e"]
    with gf.DataLoader(pipe.sample_neighbor(graph, [3, 4]).fetch_feature(features, names, edges), 0, seed=1) as loader:
        return list(loader)


@each_graph
def test_stored_parts_give_the_mini_batches_of_the_whole_graph(
    make: Callable[[], gf.FusedCSCSamplingGraph], write: Callable[..., Path]
) -> None:
    root, expected = write(make(), 2, empty=1), epoch(make(), graphs.codes_of(make()))

    def work(rank: int, peers: Peers) -> None:
        part = open_part(root, rank // 2, check=True)
        assert_same(epoch(PartitionedGraph(part.graph, peers), part.partitioned_features(peers)), expected)

    in_threads(6, work)


@each_graph
def test_a_part_is_the_one_cut_in_memory(
    make: Callable[[], gf.FusedCSCSamplingGraph], write: Callable[..., Path]
) -> None:
    num_parts = 3
    graph, root = make(), write(make(), num_parts, empty=1)
    parts = stacked_assignment(graph, assign_nodes(graph, num_parts, "hash"), num_parts)
    book = PartBook.from_assignment(parts, num_parts + 1)
    for part in range(num_parts + 1):
        found, expected = open_part(root, part, check=True).graph, cut_graph(graph, book, part)
        assert_same(found.columns.fields(), expected.columns.fields())
        assert (found.number, found.num_edges) == (part, graph.num_edges)
        assert found.book.num_parts == num_parts + 1
        assert_same(found.book.ids_of(part), torch.nonzero(parts == part).flatten())


@each_graph
def test_rows_of_features_are_those_of_the_parts_nodes_and_edges(
    make: Callable[[], gf.FusedCSCSamplingGraph], write: Callable[..., Path]
) -> None:
    graph = make()
    whole = graphs.codes_of(graph)
    root = write(graph, 3)
    keys = whole.keys()
    for key in keys:
        owned = []
        for part in range(3):
            stored = open_part(root, part)
            rows = stored.features[key].read()
            if key[0] == "graph":
                assert_same(rows, whole[key].read())
                continue
            ids = stored.books[gf.FeatureKey(*key)].ids_of(part)
            assert_same(rows, whole[key].read(ids))
            owned += ids.tolist()
            if key[0] == "edge":
                assert set(ids.tolist()) == own_edges(stored, key[1])
        assert sorted(owned) == list(range(whole[key].count() if key[0] != "graph" else 0))


def own_edges(stored: StoredPart, kind: str | None) -> set[int]:
    """Return the ids of the edges that a part holds."""
    columns = stored.graph.columns
    ids = stored.graph.edge_ids()
    if kind is not None:
        assert columns.type_per_edge is not None
        assert columns.edge_type_to_id is not None
        ids = ids[columns.type_per_edge == columns.edge_type_to_id[kind]]
    return set(ids.tolist())


def test_a_single_rank_reads_all_rows_by_their_ids(write: Callable[..., Path]) -> None:
    graph = graphs.typed()
    whole, store = graphs.codes_of(graph), open_part(write(graph, 1), 0).partitioned_features()
    keys = whole.keys()
    assert list(store.keys()) == [("graph", None, "mean"), *(key for key in keys if key[0] != "graph")]
    ids = torch.tensor([5, 0])
    assert_same(store.read("node", "user", "y", ids), whole.read("node", "user", "y", ids))
    assert_same(store.read("graph", None, "mean"), whole.read("graph", None, "mean"))


def test_edges_without_ids_get_their_positions_which_take_no_file_and_other_column_starts_are_refused(
    tmp_path: Path,
) -> None:
    graph = gf.fused_csc_sampling_graph(torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 0]))
    features = gf.BasicFeatureStore({("edge", None, "feat"): gf.TorchBasedFeature(torch.arange(3.0)[:, None])})
    root = write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1]), 2, features)
    stored = open_part(root, 1, check=True)
    assert stored.graph.edge_ids().tolist() == [1, 2]
    assert stored.features.read("edge", None, "feat").tolist() == [[1], [2]]
    assert not list(root.glob("*/edge_attributes*"))
    np.save(root / "first_edges.npy", np.array([0, 2, 3, 3]))
    with pytest.raises(ValueError, match="csc_indptr disagree on the number of in-edges of nodes of part 1"):
        open_part(root, 1, check=True)
    np.save(root / "first_edges.npy", np.array([0, 1, 3, 4]))
    with pytest.raises(ValueError, match="must have 4 values from 0 to 3, but has 4 from 0 to 4"):
        open_part(root, 1)


def test_a_graph_without_nodes_has_parts(tmp_path: Path) -> None:
    graph = gf.from_coo(torch.empty(2, 0, dtype=torch.int64), 0)
    root = write_partition(tmp_path / "parts", graph, torch.empty(0, dtype=torch.int64), 2)
    assert open_part(root, 1, check=True).graph.columns.total_num_nodes == 0


def test_writes_stay_in_the_process_and_there_are_no_other_parts(write: Callable[..., Path]) -> None:
    root = write(graphs.plain(), 2)
    before = open_part(root, 0).graph.columns.indices.clone()
    open_part(root, 0).graph.columns.indices[:] = 0
    assert_same(open_part(root, 0).graph.columns.indices, before)
    check_all_refused(lambda part: open_part(root, part), [-1, 2], r"part must be in 0 \.\. 1, but is")


def test_arrays_with_other_values_are_noticed(write: Callable[..., Path]) -> None:
    root = write(graphs.plain(), 2)
    for name, added, check, message in (
        ("part_0/csc_indptr.npy", 1, False, "csc_indptr must start with 0"),
        ("part_0/indices.npy", 1000, True, "indices"),
        ("node_parts.npy", 2, False, r"0 \.\. 1"),
    ):
        values = np.load(root / name)
        np.save(root / name, values + values.dtype.type(added))
        if check:
            open_part(root, 0)
        with pytest.raises(ValueError, match=message) as caught:
            open_part(root, 0, check=check)
        assert "changed after it was written" in caught.value.__notes__[0]
        np.save(root / name, values)


def test_an_array_that_is_missing_from_the_metadata_is_noticed(write: Callable[..., Path]) -> None:
    root = write(graphs.typed(), 2)
    text = (root / "partition.json").read_text()

    def read_without(role: str) -> StoredPart:
        content = json.loads(text)
        for entries in (content["shared"], *content["parts"]):
            entries[:] = [entry for entry in entries if entry["role"] != role]
        (root / "partition.json").write_text(json.dumps(content))
        return open_part(root, 0)

    assert read_without("node_attributes").graph.columns.node_attributes == {}
    roles = ["csc_indptr", "indices", "node_parts", "type_per_edge"]
    check_all_refused(read_without, roles, "", (KeyError, ValueError))


def test_other_metadata_is_refused(write: Callable[..., Path]) -> None:
    root = write(graphs.typed(), 2)
    path = root / "partition.json"
    text = path.read_text()
    (entry,) = (entry for entry in json.loads(text)["shared"] if entry["role"] == "node_parts")
    (root / "node_parts.npy").rename(root.parent / "node_parts.npy")
    (root / "link.npy").symlink_to(root.parent / "node_parts.npy")

    def read_with(change: Any) -> StoredPart:
        path.write_text(change if isinstance(change, str) else json.dumps(json.loads(text) | change))
        return open_part(root, 0)

    changes: list[tuple[Any, str]] = [
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "it is 'other'"),
        ({"num_nodes": -1}, "num_nodes is -1.*write the partition again"),
        ({"num_edges": {"a:b:c": "many"}}, "num_edges is"),
        ({"edge_type_to_id": [1]}, "edge_type_to_id is"),
        ({"parts": [[{"path": "x"}]]}, "role"),
        ({"shared": 3}, "not iterable"),
    ]
    changes += [(text, "can't be read") for text in ("", "{", "[]", "null", '{"format": "graphfeed partition"}')]
    wrong: list[dict[str, Any]] = [
        {"role": "node_type_to_id"}, {"role": "feature"}, {"dtype": "load"}, {"dtype": None}, {"path": 5},
        {"shape": [-1]}, {"shape": []}, {"shape": [2.0]}, {"key": [3]}, {"key": ["name"]},
    ]  # fmt: skip
    changes += [({"shared": [entry | own]}, "can't be read") for own in wrong]
    for outside in ("../node_parts.npy", f"{root.parent}/node_parts.npy", "link.npy"):
        changes.append(({"shared": [entry | {"path": outside}]}, "out of the folder"))
    check_refused((partial(read_with, change), ValueError, words) for change, words in changes)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"partition\.json"):
        open_part(root, 0)


def test_a_file_that_is_not_as_described_is_refused(write: Callable[..., Path]) -> None:
    root = write(graphs.plain(), 2)
    path = root / "part_0/indices.npy"
    values, whole = np.load(path), path.read_bytes()

    def read_after(save: Callable[[], object]) -> StoredPart:
        path.unlink(missing_ok=True)
        save()
        return open_part(root, 0)

    shapes = r"has \w+ of shape \(\d+,\), but .* specifies \w+ of shape"
    check_refused([
        (lambda: read_after(lambda: None), FileNotFoundError, r"indices\.npy"),
        (lambda: read_after(lambda: np.save(path, values[1:])), ValueError, shapes),
        (lambda: read_after(lambda: np.save(path, values.astype(np.int16))), ValueError, "has int16"),
        (lambda: read_after(lambda: np.save(path, np.ones((len(values), 2)).T)), ValueError, ""),
        (lambda: read_after(lambda: path.write_bytes(whole[:-1])), ValueError, "can't be read"),
        (lambda: read_after(lambda: path.write_bytes(b"")), ValueError, "can't be read"),
    ])  # fmt: skip


def test_more_parts_than_there_can_be_folders_are_refused_before_the_work_begins(tmp_path: Path) -> None:
    graph, parts = graphs.plain(), torch.zeros(100, dtype=torch.int64)
    many, words = 10**9, r"at most 65,536, because each part has its own folder.*but is 1,000,000,000"
    check_refused([
        (lambda: write_partition(tmp_path / "parts", graph, parts, many), ValueError, words),
        (lambda: Partitioner(graph, many, tmp_path / "parts", method=parts), ValueError, words),
        (lambda: report_partition(graph, parts, many), ValueError, words),
    ])  # fmt: skip
    assert list(tmp_path.iterdir()) == []
