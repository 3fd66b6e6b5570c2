"""The edges of a part, and attributes of edges and tensors; the first two tests have the values of PyG's tests."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    LocalFeatureStore,
    LocalGraphStore,
    Partitioner,
    assign_nodes,
    cut_graph,
    write_partition,
)
from graphfeed.ops import ALWAYS
from graphfeed.pyg.data import import_pyg
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same
from tests.kinds.pipelines import random_edges
from tests.kinds.pyg_data import hetero_data
from tests.kinds.refusals import check_refused

pyg_data = import_pyg("torch_geometric.data", "tests")
EdgeAttr: Any = pyg_data.EdgeAttr


def test_edges_are_set_listed_and_removed() -> None:
    store = LocalGraphStore()
    index, ids = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([1, 2, 3, 5])
    attr = EdgeAttr(None, "coo", False, (3, 3))
    assert store.put_edge_index(index, edge_type=None, layout="coo", size=(3, 3))
    assert store.put_edge_id(ids, edge_type=None, layout="coo", size=(3, 3))
    assert store.get_all_edge_attrs() == [attr]
    assert_same([store.get_edge_index(attr), store.get_edge_id(attr)], [index, ids])
    assert [store.remove_edge_index(attr), store.remove_edge_index(attr)] == [True, False]
    assert [store.remove_edge_id(attr), store.remove_edge_id(attr)] == [True, False]
    assert store.get_all_edge_attrs() == []
    assert store.get_edge_id(attr) is None


def test_a_graph_store_is_one_of_pygs_with_its_layouts_and_is_copied() -> None:
    index = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
    made, empty = LocalGraphStore.from_data(torch.arange(4), index, num_nodes=3), LocalGraphStore()
    assert isinstance(made, pyg_data.GraphStore)
    empty[EdgeAttr(None, "coo", False, (3, 3))] = index
    for store in (made, empty, pickle.loads(pickle.dumps(made))):
        sources, first_edges, _ = store.csc()
        assert (sources.tolist(), first_edges.tolist()) == ([1, 0, 2, 0], [0, 1, 3, 4])
        for attr in (EdgeAttr(None, "coo"), (None, "coo"), {"edge_type": None, "layout": "coo"}):
            assert store.get_edge_index(attr).shape == (2, 4)
    assert made.get_edge_id(EdgeAttr(None, "coo")).tolist() == [2, 0, 1, 3]
    del empty[EdgeAttr(None, "coo")]
    assert empty.get_all_edge_attrs() == []


def test_edges_are_sorted_by_destination_and_source() -> None:
    ids, index = torch.randperm(300), random_edges(100, 100, 300, 0)
    store = LocalGraphStore.from_data(ids, index, num_nodes=100)
    (attr,) = store.get_all_edge_attrs()
    assert (attr.edge_type, attr.layout.value, attr.is_sorted, attr.size) == (None, "coo", True, (100, 100))
    expected = sorted(zip(index[1].tolist(), index[0].tolist(), strict=True))
    found = store.get_edge_index(attr)
    assert list(zip(found[1].tolist(), found[0].tolist(), strict=True)) == expected
    assert_same(index[:, ids.argsort()[store.get_edge_id(attr)]], found)
    assert_same(LocalGraphStore.from_data(ids, index, 100, is_sorted=True).get_edge_index(attr), index)


def test_a_typed_store_has_edges_by_type() -> None:
    kinds: dict[Any, Any] = {("a", "to", "b"): random_edges(5, 4, 9, 0), ("b", "of", "a"): random_edges(4, 5, 8, 1)}
    ids = {kind: torch.arange(index.shape[1]) for kind, index in kinds.items()}
    store = LocalGraphStore.from_hetero_data(ids, kinds, {"a": 5, "b": 4})
    assert store.is_hetero
    assert [attr.size for attr in store.get_all_edge_attrs()] == [(5, 4), (4, 5)]
    whole = gf.from_coo(kinds, {"a": 5, "b": 4})
    assert_same(store.graph_part().columns.fields(), whole.fields())


def test_edges_to_nodes_of_other_parts_are_left_out() -> None:
    """Like PyG's tests of its sampler, whose parts overlap and have no edge ids."""
    index = torch.tensor([[1, 2, 3, 4, 5, 0, 0], [0, 1, 2, 3, 4, 4, 9]])
    store = LocalGraphStore.from_data(None, index, num_nodes=10, is_sorted=True)
    store.num_partitions = 2
    store.node_pb = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    part = store.graph_part()
    assert part.columns.csc_indptr.tolist() == [0, 1, 2, 3, 4, 6, 6, 6, 6, 6, 6]
    assert part.columns.indices.tolist() == [1, 2, 3, 4, 5, 0]
    assert (part.number, part.num_edges, part.book.num_parts) == (0, 6, 2)


def ids_of(store: LocalGraphStore, attr: EdgeAttr) -> torch.Tensor:
    ids = store.get_edge_id(attr)
    assert ids is not None
    return ids


def check_parts(root: Path, whole: gf.FusedCSCSamplingGraph, parts: Any, time_attr: str | None = None) -> None:
    """Fail unless the parts in a folder equal those of the whole graph in memory."""
    for number in range(2):
        store, features = LocalGraphStore.from_partition(root, number), LocalFeatureStore.from_partition(root, number)
        found, expected = store.graph_part(features, time_attr), cut_graph(whole, parts, number)
        names = {gf.ORIGINAL_EDGE_ID} | ({time_attr} if time_attr else set())
        for name in ("csc_indptr", "indices", "type_per_edge"):
            assert_same(getattr(found.columns, name), getattr(expected.columns, name))
        for own, wanted in (
            (found.columns.edge_attributes, expected.columns.edge_attributes),
            (found.columns.node_attributes, expected.columns.node_attributes),
        ):
            for name in names & set(wanted):
                assert_same(own[name], wanted[name])
        assert found.num_edges == expected.num_edges
        assert_same(found.book.ids_of(number), expected.book.ids_of(number))


@pytest.mark.parametrize("make", [graphs.plain, graphs.typed])
def test_both_layouts_give_the_parts_of_the_whole_graph(tmp_path: Path, make: Any) -> None:
    graph = make()
    parts = assign_nodes(graph, 2, "hash")
    Partitioner(graph, 2, tmp_path / "pyg", method=parts).generate_partition()
    write_partition(tmp_path / "own", graph, parts, num_parts=2)
    for layout in ("pyg", "own"):
        for time_attr in (None, "time"):
            check_parts(tmp_path / layout, graph, parts, time_attr)
    own, pyg = (LocalGraphStore.from_partition(tmp_path / layout, 0) for layout in ("own", "pyg"))
    assert own.meta == {name: value for name, value in (pyg.meta or {}).items() if name in (own.meta or {})}
    assert own.edge_pb is None


def test_times_of_edges_follow_their_ids(tmp_path: Path) -> None:
    data = hetero_data()
    edges = {kind: data[kind].edge_index for kind in data.edge_types}
    times = {kind: data[kind].edge_time for kind in data.edge_types}
    graph = gf.from_coo(edges, {"user": 50, "item": 20}, edge_attributes={"edge_time": times})
    parts = assign_nodes(graph, 2, "hash")
    Partitioner(data, 2, tmp_path / "parts", method=parts).generate_partition()
    check_parts(tmp_path / "parts", graph, parts, "edge_time")
    for number in range(2):
        store = LocalGraphStore.from_partition(tmp_path / "parts", number)
        for attr in store.get_all_edge_attrs():
            ids = ids_of(store, attr)
            assert_same(store.get_edge_index(attr), data[attr.edge_type].edge_index[:, ids])
            assert_same(store.get_partition_ids_from_eids(ids, attr.edge_type), torch.full_like(ids, number))
            ends = store.get_edge_index(attr)[1]
            assert_same(store.get_partition_ids_from_nids(ends, attr.edge_type[2]), torch.full_like(ends, number))


def test_what_can_t_be_sampled_is_refused() -> None:
    layout, small = LocalGraphStore(), LocalGraphStore.from_data(torch.arange(1), torch.tensor([[0], [1]]), 2)
    layout.put_edge_index((torch.tensor([0, 1]), torch.tensor([0])), edge_type=None, layout="csc", size=(1, 1))
    empty, unknown = LocalGraphStore(), LocalGraphStore.from_data(torch.arange(1), torch.tensor([[0], [1]]), 2)
    unknown.num_partitions = 2
    attr = EdgeAttr(None, "coo", False, (3, 3))
    nothing, short = LocalFeatureStore.from_data(torch.arange(2)), LocalFeatureStore.from_data(torch.arange(2))
    short.put_tensor(torch.arange(1), None, "time")

    def part_of(**times: torch.Tensor) -> object:
        features, graph = in_time(**times)
        return graph.graph_part(features, "time")

    halves, whole = torch.tensor([0.5, 1.5]), {"user": torch.arange(2), "likes": torch.arange(1)}
    dtype = r"time_attr 'time' must be torch\.int64, but is torch\.float32"
    check_refused(
        [
            (lambda: empty.get_edge_index(attr), KeyError, "'edge_index' for 'EdgeAttr.* not found"),
            (lambda: empty.get_partition_ids_from_nids(torch.tensor([0])), ValueError, "the parts are unknown"),
            (empty.graph_part, ValueError, "the graph store has no edges"),
            (layout.graph_part, ValueError, "edges must have the layout 'coo'"),
            (unknown.graph_part, ValueError, "the parts of nodes are unknown"),
            (lambda: small.graph_part(nothing, "time"), ValueError, "'time', but neither nodes nor edges"),
            (lambda: small.graph_part(short, "time"), ValueError, "must have the timestamps of all 2 nodes, not 1"),
            (lambda: part_of(user=halves), TypeError, dtype),
            (lambda: part_of(likes=halves[:1]), TypeError, dtype),
            (lambda: part_of(**whole), ValueError, "nodes and edges both have time_attr 'time'; rename one of them"),
        ]
    )


def in_time(**values: torch.Tensor) -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return stores of two node types and two edge types, some with timestamps."""
    ends = {("user", "likes", "item"): torch.tensor([[0], [1]]), ("item", "liked_by", "user"): torch.tensor([[1], [0]])}
    graph = LocalGraphStore.from_hetero_data(dict.fromkeys(ends, torch.arange(1)), ends, {"user": 2, "item": 2})
    features = LocalFeatureStore.from_hetero_data({"user": torch.arange(2), "item": torch.arange(2)})
    for group, times in values.items():
        features.put_tensor(times, next((kind for kind in ends if kind[1] == group), group), "time")
    return features, graph


def test_types_without_times_exist_at_all_times() -> None:
    features, graph = in_time(user=torch.tensor([[3], [4]], dtype=torch.int32))
    times = graph.graph_part(features, "time").columns.node_attribute("time")
    assert times.tolist() == [3, 4, ALWAYS, ALWAYS]
    features, graph = in_time(likes=torch.tensor([7]))
    assert sorted(graph.graph_part(features, "time").columns.edge_attribute("time").tolist()) == [ALWAYS, 7]
