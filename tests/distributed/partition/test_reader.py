"""Tests of the metadata of a partition, and of parts that are read from files."""

import json
from collections.abc import Callable
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
from graphfeed.distributed.partition.part_layout import (
    FILE_NAME,
    ArrayEntry,
    PartitionMetadata,
    map_entry,
    parse_entry,
    read_metadata,
)
from graphfeed.storage.graph.assign import stacked_assignment
from tests.digests import assert_same
from tests.distributed import graphs
from tests.distributed.joint import in_threads
from tests.refusals import check_all_refused, check_refused

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


def test_edges_without_ids_get_their_positions_which_take_no_file(tmp_path: Path) -> None:
    graph = gf.fused_csc_sampling_graph(torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 0]))
    features = gf.BasicFeatureStore({("edge", None, "feat"): gf.TorchBasedFeature(torch.arange(3.0)[:, None])})
    root = write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1]), 2, features)
    stored = open_part(root, 1, check=True)
    assert stored.graph.edge_ids().tolist() == [1, 2]
    assert stored.features.read("edge", None, "feat").tolist() == [[1], [2]]
    assert not list(root.glob("*/edge_attributes*"))


def test_column_starts_that_are_not_those_of_the_part_are_refused(tmp_path: Path) -> None:
    graph = gf.fused_csc_sampling_graph(torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 0]))
    root = write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1]), 2)
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


def test_a_part_that_is_as_it_was_written_is_sampled_without_a_pass(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(graphs.plain(), 2)
    checks: list[gf.FusedCSCSamplingGraph] = []
    monkeypatch.setattr(gf.FusedCSCSamplingGraph, "check", lambda graph: checks.append(graph))
    for count in range(2):
        columns = open_part(root, 0).graph.columns
        columns.sample_neighbors(torch.tensor([0]), torch.tensor([1]))
        assert checks == [columns] * count
        (root / "part_0/indices.npy").touch()


def test_writes_stay_in_the_process(write: Callable[..., Path]) -> None:
    root = write(graphs.plain(), 2)
    before = open_part(root, 0).graph.columns.indices.clone()
    open_part(root, 0).graph.columns.indices[:] = 0
    assert_same(open_part(root, 0).graph.columns.indices, before)


def test_there_are_no_other_parts(write: Callable[..., Path]) -> None:
    root = write(graphs.plain(), 2)
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
    text = (root / FILE_NAME).read_text()

    def read_without(role: str) -> StoredPart:
        content = json.loads(text)
        for entries in (content["shared"], *content["parts"]):
            entries[:] = [entry for entry in entries if entry["role"] != role]
        (root / FILE_NAME).write_text(json.dumps(content))
        return open_part(root, 0)

    assert read_without("node_attributes").graph.columns.node_attributes == {}
    roles = ["csc_indptr", "indices", "node_parts", "type_per_edge"]
    check_all_refused(read_without, roles, "", (KeyError, ValueError))


ENTRY: dict[str, Any] = {"path": "a.npy", "role": "indices", "key": [], "dtype": "int64", "shape": [3]}


def metadata() -> PartitionMetadata:
    shared = [ArrayEntry("node_parts.npy", "node_parts", (), "uint8", (3,))]
    feature = ArrayEntry("part_0/feature_0.npy", "feature", ("node", "user", "feat"), "float32", (2, 4))
    return PartitionMetadata(
        {"user": 2, "item": 1}, {"user:likes:item": 5}, {"user:likes:item": 0}, shared, [[feature], []], 7, "a"
    )


def test_metadata_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(metadata().to_json())
    assert read_metadata(tmp_path) == metadata()
    assert metadata().total_num_nodes == 3


def test_other_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with pytest.raises(FileNotFoundError, match=FILE_NAME):
        read_metadata(tmp_path)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "it is 'other'"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"num_edges": {"a:b:c": "many"}}, "num_edges is"),
        ({"edge_type_to_id": [1]}, "edge_type_to_id is"),
        ({"parts": [[{"path": "x"}]]}, "role"),
        ({"shared": 3}, "not iterable"),
    ]
    for changed, message in changes:
        path.write_text(json.dumps(json.loads(metadata().to_json()) | changed))
        with pytest.raises(ValueError, match=message) as caught:
            read_metadata(tmp_path)
        assert str(path) in str(caught.value)
        assert "write the partition again" in str(caught.value)
    for text in ("", "{", "[]", "null", '{"format": "graphfeed partition"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="can't be read"):
            read_metadata(tmp_path)


def test_entries_that_describe_no_array_are_refused() -> None:
    assert parse_entry(ENTRY).shape == (3,)
    wrong: list[Any] = [
        *[{"role": "node_type_to_id"}, {"role": "feature"}, {"dtype": "load"}, {"dtype": None}, {"path": 5}],
        *[{"shape": [-1]}, {"shape": []}, {"shape": [2.0]}, {"key": [3]}, {"key": ["name"]}],
    ]
    check_all_refused(lambda change: parse_entry(ENTRY | change), wrong, "", (ValueError, TypeError))


def test_a_write_does_not_reach_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    map_entry(tmp_path, parse_entry(ENTRY))[0] = 7
    assert map_entry(tmp_path, parse_entry(ENTRY)).tolist() == [0, 1, 2]


def test_a_file_that_is_not_as_described_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    entry = parse_entry(ENTRY)
    with pytest.raises(FileNotFoundError, match=r"a\.npy"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(4))
    with pytest.raises(ValueError, match=r"has int64 of shape \(4,\), but .* specifies int64 of shape \(3,\)"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(3, dtype=np.int32))
    with pytest.raises(ValueError, match="has int32"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(3))
    whole = path.read_bytes()
    np.save(path, np.array([{}, 1, 2], dtype=object))
    objects = path.read_bytes()
    with path.open("wb") as file:
        np.savez(file, a=np.arange(3))
    for content in (objects, whole[:-1], b"", path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="can't be read"):
            map_entry(tmp_path, entry)
    np.save(path, np.asfortranarray(np.ones((3, 2))))
    with pytest.raises(ValueError, match="Fortran order"):
        map_entry(tmp_path, ArrayEntry("a.npy", "indices", (), "float64", (3, 2)))


def test_no_path_leads_out_of_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    np.save(tmp_path / "a.npy", np.arange(3))
    (root / "link.npy").symlink_to(tmp_path / "a.npy")
    for path in ("../a.npy", f"{tmp_path}/a.npy", "link.npy"):
        with pytest.raises(ValueError, match="out of the folder"):
            map_entry(root, parse_entry(ENTRY | {"path": path}))


def test_more_parts_than_there_can_be_folders_are_refused_before_the_work_begins(tmp_path: Path) -> None:
    graph, parts = graphs.plain(), torch.zeros(100, dtype=torch.int64)
    many, words = 10**9, r"at most 65,536, because each part has its own folder.*but is 1,000,000,000"
    check_refused(
        [
            (lambda: write_partition(tmp_path / "parts", graph, parts, many), ValueError, words),
            (lambda: Partitioner(graph, many, tmp_path / "parts", method=parts), ValueError, words),
            (lambda: report_partition(graph, parts, many), ValueError, words),
        ]
    )
    assert list(tmp_path.iterdir()) == []
