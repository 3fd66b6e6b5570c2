import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.graph_part import cut_graph
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.part_layout import FILE_NAME
from graphfeed.distributed.partition.reader import StoredPart, open_part
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.storage.graph.assignment.assign import assign_nodes, stacked_assignment
from tests.digests import assert_same
from tests.distributed import graphs
from tests.refusals import check_all_refused

LIKES = "user:likes:item"
each_graph = pytest.mark.parametrize("make", [graphs.plain, graphs.typed])


def features_of(graph: gf.FusedCSCSamplingGraph) -> gf.BasicFeatureStore:
    """Return features that encode the ids that they belong to."""
    node, edge = ("user", LIKES) if graph.node_type_to_id else (None, None)
    nodes, edges = (90, 300) if graph.node_type_to_id else (100, 700)
    return gf.BasicFeatureStore(
        {
            ("node", node, "feat"): gf.TorchBasedFeature(torch.arange(nodes, dtype=torch.bfloat16)[:, None]),
            ("edge", edge, "feat"): gf.TorchBasedFeature(torch.arange(edges).view(-1, 1, 1) * torch.ones(1, 2, 3)),
            ("edge", edge, "other"): gf.TorchBasedFeature(torch.arange(edges, dtype=torch.int32)[:, None]),
            ("graph", None, "mean"): gf.TorchBasedFeature(torch.tensor([[1.5, 2.5]])),
        }
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(graph: gf.FusedCSCSamplingGraph, num_parts: int, empty: int = 0) -> Path:
        parts = assign_nodes(graph, num_parts, "hash")
        return write_partition(tmp_path / "parts", graph, parts, num_parts + empty, features_of(graph))

    return write


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
    whole = features_of(graph)
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
    whole, store = features_of(graph), open_part(write(graph, 1), 0).partitioned_features()
    keys = whole.keys()
    assert list(store.keys()) == [("graph", None, "mean"), *(key for key in keys if key[0] != "graph")]
    ids = torch.tensor([5, 0])
    assert_same(store.read("node", "user", "feat", ids), whole.read("node", "user", "feat", ids))
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
    with pytest.raises(ValueError, match="other numbers of in-edges than csc_indptr for nodes of part 1"):
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
    check_all_refused(lambda part: open_part(root, part), [-1, 2], r"part must lie in 0 \.\. 1, but is")


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
