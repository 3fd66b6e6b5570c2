"""Loaders whose mini-batches are subgraphs of PyG's data: around roots, of parts and of clusters."""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed import ItemSampler, ItemSet, IterableSource, SamplingGraph, from_coo
from graphfeed.pyg import (
    ClusterData,
    ClusterLoader,
    HGTLoader,
    HGTSampler,
    InduceTrees,
    RandomNodeLoader,
    ShaDowKHopSampler,
    ToRootedBatch,
)
from graphfeed.pyg.data import import_pyg
from tests.kinds.neighborhood import (
    KINDS,
    NUM_EDGES,
    NUM_NODES,
    around,
    assert_true,
    heterogeneous,
    homogeneous,
    values_of,
)

ROOTS = torch.tensor([9, 4, 9, 7])


def parts_of(data: Any, batch: Any) -> list[tuple[list[int], set[int]]]:
    """Return the nodes and the edges of each subgraph, after checking the endpoints of the edges."""
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    parts = []
    for place in range(len(batch.ptr) - 1):
        nodes = batch.n_id[batch.ptr[place] : batch.ptr[place + 1]].tolist()
        assert set(batch.batch[batch.ptr[place] : batch.ptr[place + 1]].tolist()) == {place}
        edges = batch.e_id[batch.batch[batch.edge_index[0]] == place].tolist()
        assert len(edges) == len(set(edges))
        parts.append((nodes, set(edges)))
    return parts


def induced(data: Any, nodes: list[int]) -> set[int]:
    pairs = data.edge_index.T.tolist()
    return {edge for edge, (source, end) in enumerate(pairs) if source in nodes and end in nodes}


def test_all_neighbours_give_the_induced_subgraph_around_each_root() -> None:
    data = homogeneous()
    (batch,) = ShaDowKHopSampler(data, 2, -1, ROOTS, batch_size=4)
    for root, (nodes, edges) in zip(ROOTS.tolist(), parts_of(data, batch), strict=True):
        assert nodes == around(data, {"": [root]}, 2).nodes[""]
        assert edges == induced(data, nodes)
    assert batch.n_id[batch.root_n_id].tolist() == ROOTS.tolist()
    assert batch.y.tolist() == ROOTS.tolist()
    assert batch.input_id.tolist() == [0, 1, 2, 3]
    assert (batch.num_graphs, batch.num_nodes, batch.name) == (4, len(batch.n_id), "random")
    assert type(batch).__name__ == "DataBatch"


def test_as_many_neighbours_as_asked_for_are_sampled() -> None:
    for replace in [False, True]:
        data = homogeneous()
        sizes = []
        for batch in ShaDowKHopSampler(data, 2, 2, batch_size=20, replace=replace, seed=2):
            for nodes, edges in parts_of(data, batch):
                whole = around(data, {"": nodes[:1]}, 2).nodes[""]
                assert set(nodes) <= set(whole)
                assert edges == induced(data, nodes)
                sizes.append(len(nodes))
        assert len(sizes) == 60
        assert 4 < max(sizes) <= 7


@pytest.mark.filterwarnings("ignore:'y' has 2 rows")
def test_roots_may_be_a_mask_and_labels_that_are_not_those_of_nodes_stay() -> None:
    data = homogeneous()
    data.y = torch.tensor([5.0, 6.0])
    batches = list(ShaDowKHopSampler(data, 1, 1, data.train_mask))
    assert [batch.n_id[batch.root_n_id].tolist() for batch in batches] == [[node] for node in range(0, 60, 3)]
    assert batches[0].y.tolist() == [5, 6]


GRAPH = from_coo(([1, 2, 2, 0], [0, 0, 1, 2]), num_nodes=4)


class OneHopGraph(SamplingGraph):
    """A user-defined graph, which samples one hop."""

    num_nodes, num_edges = GRAPH.num_nodes, GRAPH.num_edges

    def sample_neighbors(self, *args: Any, **kwargs: Any) -> Any:
        return GRAPH.sample_neighbors(*args, **kwargs)


def test_an_edge_is_there_in_each_tree_that_has_both_of_its_ends() -> None:
    for graph in [GRAPH, OneHopGraph()]:
        pipe = ItemSampler(ItemSet([0, 1, 3], names="seeds"), 3).sample_neighbor(
            graph, [-1], only_new=True, disjoint=True
        )
        batch: Any
        (batch,) = InduceTrees(pipe, graph)
        output = batch.output
        # The last root has no neighbours.
        assert output.node.tolist() == [0, 1, 2, 1, 2, 3]
        assert output.batch.tolist() == [0, 0, 0, 1, 1, 2]
        pairs = sorted(zip(output.edge.tolist(), output.row.tolist(), output.col.tolist(), strict=True))
        assert pairs == [(0, 1, 0), (1, 2, 0), (2, 2, 1), (2, 4, 3), (3, 0, 2)]


def test_parts_are_those_of_pyg_in_order() -> None:
    for make in [homogeneous, heterogeneous]:
        data, theirs = make(), import_pyg("torch_geometric.loader", "tests").RandomNodeLoader
        ours = RandomNodeLoader(data, 7)
        assert len(ours) == 7
        for own, other in zip(ours, theirs(data, 7), strict=True):
            assert_true(data, own)
            for store, wanted in zip(own.node_stores, other.node_stores, strict=True):
                for name in {"x", "y", "train_mask", "time"} & set(wanted.keys()):
                    assert torch.equal(store[name], wanted[name])
            for store, wanted in zip(own.edge_stores, other.edge_stores, strict=True):
                order = store.e_id.argsort()
                assert store.edge_index[:, order].tolist() == wanted.edge_index.tolist()
                assert store.edge_attr[order].tolist() == wanted.edge_attr.tolist()


def test_shuffled_parts_have_each_node_once_and_all_edges_inside() -> None:
    data, found = homogeneous(), []
    for batch in RandomNodeLoader(data, 3, shuffle=True, seed=1):
        assert_true(data, batch)
        inside = torch.isin(data.edge_index, batch.n_id).all(dim=0).nonzero().squeeze(1)
        assert batch.e_id.sort().values.tolist() == inside.tolist()
        found += batch.n_id.tolist()
    assert found != sorted(found)
    assert sorted(found) == list(range(60))


NUMBERS = {"user": [3, 4], "item": [2, 5]}


def test_a_batch_has_so_many_nodes_of_each_type_and_all_edges_among_them() -> None:
    data = heterogeneous()
    loader = HGTLoader(data, NUMBERS, ("user", torch.arange(0, 40, 3)), batch_size=4, seed=1)
    for batch in loader:
        assert_true(data, batch)
        size = batch["user"].batch_size
        assert batch["user"].n_id[:size].tolist() == (3 * batch["user"].input_id).tolist()
        assert batch["user"].y.tolist() == batch["user"].n_id.tolist()
        assert (batch["user"].num_nodes, batch["item"].num_nodes) == (size + 7, 7)
        for edge_type in KINDS:
            ends = zip(data[edge_type].edge_index, edge_type[::2], strict=True)
            inside = torch.stack([torch.isin(ids, batch[kind].n_id) for ids, kind in ends]).all(dim=0)
            assert batch[edge_type].e_id.sort().values.tolist() == inside.nonzero().squeeze(1).tolist()


def test_with_room_for_all_it_is_all_that_is_around_the_seeds() -> None:
    data = heterogeneous()
    (batch,) = HGTLoader(data, [1000], ("user", torch.tensor([7])))
    leading = [data[kind].edge_index[0][data[kind].edge_index[1] == 7] for kind in KINDS if kind[2] == "user"]
    assert sorted(batch["item"].n_id.tolist()) == leading[0].unique().tolist()
    assert sorted(batch["user"].n_id.tolist()) == sorted({7, *leading[1].tolist()})


def test_a_function_sees_the_samplers_output_before_features_are_fetched() -> None:
    def drop_items(output: Any) -> Any:
        output.node["item"] = output.node["item"][:0]
        return output

    batch = next(iter(HGTLoader(heterogeneous(), NUMBERS, "user", batch_size=9, transform_sampler_output=drop_items)))
    assert len(batch["item"].x) == 0
    assert len(batch["user"].x) == 9 + 7


def test_pygs_own_node_loader_takes_it() -> None:
    data = heterogeneous()
    assert issubclass(HGTSampler, import_pyg("torch_geometric.sampler", "tests").BaseSampler)
    loader = import_pyg("torch_geometric.loader", "tests").NodeLoader
    seeds = torch.tensor([4, 9])
    (batch,) = loader(data, HGTSampler(data, [6, 6]), ("user", seeds), batch_size=2)
    assert_true(data, batch)
    assert batch["user"].n_id[:2].tolist() == seeds.tolist()
    assert batch["user"].num_nodes > 8
    assert batch["item"].num_nodes > 6


PARTS = 4


def pygs(data: Any, ours: ClusterData, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Return PyG's clusters with our assignment, as METIS is not installed, and equal ones in their order."""
    for module in ("torch_geometric.loader.cluster", "torch_geometric.utils._sort_edge_index"):
        monkeypatch.setattr(import_pyg(module, "tests"), "index_sort", lambda ids, **_: torch.sort(ids, stable=True))
    clusters = torch.empty(NUM_NODES, dtype=torch.int64)
    clusters[ours.partition.node_perm] = torch.repeat_interleave(torch.arange(PARTS), ours.partition.partptr.diff())
    theirs = import_pyg("torch_geometric.loader", "tests").ClusterData
    monkeypatch.setattr(theirs, "_metis", lambda self, index, count: clusters)
    return theirs(data, PARTS, log=False, **options)


def test_clusters_are_pygs_for_the_same_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    for keep, sparse_format in product([False, True], ["csr", "csc"]):
        data = homogeneous()
        data.num_nodes, data.names = NUM_NODES, [f"n{node}" for node in range(NUM_NODES)]
        options: dict[str, Any] = {"keep_inter_cluster_edges": keep, "sparse_format": sparse_format}
        ours = ClusterData(data, PARTS, **options)
        theirs = pygs(data, ours, monkeypatch, **options)
        for name, value in vars(ours.partition).items():
            assert str(value) == str(getattr(theirs.partition, name)), name
        assert len(ours) == len(theirs) == PARTS
        assert [values_of(ours[place]) for place in range(PARTS)] == [
            values_of(theirs[place]) for place in range(PARTS)
        ]
        assert values_of(ours.data) == values_of(theirs.data)
        assert values_of(ours[-1]) == values_of(ours[PARTS - 1])
        assert repr(ours) == repr(theirs)


def test_clusters_without_nodes_are_warned_about() -> None:
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    with pytest.warns(UserWarning, match=r"\d of 5 clusters have no nodes; give fewer num_parts"):
        clusters = ClusterData(data, 5)
    assert sum(clusters[place].num_nodes for place in range(5)) == 3


def test_clusters_are_balanced_and_few_edges_join_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 12 rings of 25 nodes in random order, six make a cluster, by METIS and by streaming."""
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    ring = torch.arange(300).view(12, 25)
    pairs = torch.stack([ring, ring.roll(1, dims=1)]).flatten(1)
    index = order[torch.cat([pairs, pairs.flip(0)], dim=1)]
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=300)
    by_metis = [ClusterData(data, 2), ClusterData(data, 2, recursive=True)]
    monkeypatch.setitem(sys.modules, "pymetis", None)
    streamed = ClusterData(data, 2)
    for own, kept in ((by_metis[0], 0.95), (by_metis[1], 0.95), (streamed, 0.6)):
        assert int(own.partition.partptr.diff().max()) <= 155
        assert own[0].num_edges + own[1].num_edges > kept * len(index[0])


@pytest.mark.since_torch("2.6")
def test_a_cluster_has_the_rows_of_its_own_edges_whatever_they_are_called() -> None:
    index = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 0, 3, 2, 1, 4]])
    for keep, num_nodes in product((False, True), (5, 6, 9)):
        data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=num_nodes)
        # With as many nodes as edges, PyG assigns attributes without "edge" in their name to nodes.
        name = "weight" if num_nodes != 6 else "weight_of_edge"
        data.ids, data[name] = torch.arange(num_nodes), torch.arange(6) + 10.0
        clusters = ClusterData(data, 2, keep_inter_cluster_edges=keep)
        found: dict[float, list[int]] = {}
        for item in map(clusters.__getitem__, range(len(clusters))):
            ends = clusters.partition.node_perm if keep else item.ids
            pairs = torch.stack([item.ids[item.edge_index[0]], ends[item.edge_index[1]]], dim=1)
            assert item.num_nodes == len(item.ids)
            found |= dict(zip(item[name].tolist(), pairs.tolist(), strict=True))
        assert all(pair == index[:, int(weight) - 10].tolist() for weight, pair in found.items())
        assert len(found) == 6 or not keep


def test_clusters_are_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = homogeneous()
    first = ClusterData(data, PARTS, save_dir=str(tmp_path))
    path = tmp_path / "part_4" / "metis.pt"
    assert path.exists()
    ClusterData(data, PARTS, recursive=True, save_dir=str(tmp_path), filename="mine.pt")
    assert (tmp_path / "part_4_recursive" / "mine.pt").exists()
    written = path.stat().st_mtime_ns
    second = ClusterData(data, PARTS, save_dir=str(tmp_path))
    assert path.stat().st_mtime_ns == written
    assert str(second.partition) == str(first.partition)
    # PyG's own file is accepted, too.
    theirs = pygs(data, first, monkeypatch)
    torch.save(theirs.partition, path)
    assert str(ClusterData(data, PARTS, save_dir=str(tmp_path)).partition) == str(first.partition)


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    data = homogeneous()
    fields: dict[str, Any] = dict(vars(ClusterData(data, PARTS, save_dir=str(tmp_path)).partition))
    cases: list[tuple[str, int, int]] = [
        ("node_perm", 0, int(fields["node_perm"][1])), ("index", 7, NUM_NODES), ("indptr", 3, NUM_EDGES),
    ]  # fmt: skip
    for name, place, value in cases:
        changed = fields[name].clone()
        changed[place] = value
        torch.save(fields | {name: changed}, tmp_path / "part_4" / "metis.pt")
        with pytest.raises(ValueError, match=r"metis.pt must have 4 clusters of 60 nodes"):
            ClusterData(data, PARTS, save_dir=str(tmp_path))
    torch.save(fields, tmp_path / "part_4" / "metis.pt")
    data.edge_index = data.edge_index[:, :-1]
    with pytest.raises(ValueError, match=r"metis.pt must have 4 clusters of 60 nodes"):
        ClusterData(data, PARTS, save_dir=str(tmp_path))


def test_batches_are_pygs_for_the_same_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[Any] = ["csr", "csc"]
    for sparse_format in formats:
        data = homogeneous()
        data.num_nodes = NUM_NODES
        clusters = ClusterData(data, PARTS, sparse_format=sparse_format)
        theirs = pygs(data, clusters, monkeypatch, sparse_format=sparse_format)
        expected = list(import_pyg("torch_geometric.loader", "tests").ClusterLoader(theirs, batch_size=3))
        for given in (clusters, theirs):
            found = list(ClusterLoader(given, batch_size=3))
            assert len(found) == len(expected) == 2
            for own, other in zip(found, expected, strict=True):
                assert_true(data, own)
                del own.n_id, own.e_id
                assert values_of(own) == values_of(other)


def test_ids_are_right_where_there_are_as_many_nodes_as_edges() -> None:
    index = torch.stack([torch.arange(30), torch.arange(30).roll(1)])
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, x=torch.arange(30.0))
    (whole,) = ClusterLoader(ClusterData(data, PARTS), batch_size=PARTS)
    assert whole.e_id.sort().values.tolist() == list(range(30))  # also those that join clusters
    for batch in ClusterLoader(ClusterData(data, PARTS), batch_size=2):
        assert torch.equal(batch.n_id[batch.edge_index], index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id])


def test_roots_are_where_the_parts_begin() -> None:
    data = import_pyg("torch_geometric.data", "tests").Data(
        x=torch.eye(3), y=torch.tensor([7, 8, 9]), batch=torch.tensor([0, 0, 1]), batch_size=2
    )
    batch: Any
    for of_roots, labels in ((True, [7, 9]), (False, [7, 8, 9])):
        (batch,) = ToRootedBatch(IterableSource([data]), of_roots)
        assert (batch.ptr.tolist(), batch.root_n_id.tolist(), batch.num_graphs) == ([0, 2, 3], [0, 2], 2)
        assert batch.y.tolist() == labels
        assert torch.equal(batch.x, data.x)
