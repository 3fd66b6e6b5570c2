"""Clusters of a graph, and mini-batches of some of them."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.pyg import ClusterData, ClusterLoader
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.loaders import clusters
from graphfeed.pyg.loaders.clusters import take_parts
from tests.pyg.neighborhood import NUM_EDGES, NUM_NODES, assert_true, homogeneous, values_of

PARTS = 4


def pygs(data: Any, ours: ClusterData, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Return PyG's clusters with our assignment, as its METIS is not there, and with equal ones in their order."""
    for module in ("torch_geometric.loader.cluster", "torch_geometric.utils._sort_edge_index"):
        monkeypatch.setattr(import_pyg(module, "tests"), "index_sort", lambda ids, **_: torch.sort(ids, stable=True))
    clusters = torch.empty(NUM_NODES, dtype=torch.int64)
    clusters[ours.partition.node_perm] = torch.repeat_interleave(torch.arange(PARTS), ours.partition.partptr.diff())
    theirs = import_pyg("torch_geometric.loader", "tests").ClusterData
    monkeypatch.setattr(theirs, "_metis", lambda self, index, count: clusters)
    return theirs(data, PARTS, log=False, **options)


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
@pytest.mark.parametrize("keep", [False, True])
def test_clusters_are_pygs_for_the_same_assignment(
    sparse_format: Any, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = homogeneous()
    data.num_nodes = NUM_NODES
    options: dict[str, Any] = {"keep_inter_cluster_edges": keep, "sparse_format": sparse_format}
    ours = ClusterData(data, PARTS, **options)
    theirs = pygs(data, ours, monkeypatch, **options)
    for name, value in vars(ours.partition).items():
        assert str(value) == str(getattr(theirs.partition, name)), name
    assert len(ours) == len(theirs) == PARTS
    assert [values_of(ours[place]) for place in range(PARTS)] == [values_of(theirs[place]) for place in range(PARTS)]
    assert values_of(ours.data) == values_of(theirs.data)
    assert values_of(ours[-1]) == values_of(ours[PARTS - 1])
    assert repr(ours) == repr(theirs)


def test_clusters_without_nodes_are_warned_about() -> None:
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    with pytest.warns(UserWarning, match=r"\d of 5 clusters have no nodes; give fewer num_parts"):
        clusters = ClusterData(data, 5)
    assert sum(clusters[place].num_nodes for place in range(5)) == 3


def test_clusters_are_balanced_and_few_edges_join_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 rings of 25 nodes in random order, six make a cluster: by METIS and in a stream."""
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    ring = torch.arange(300).view(12, 25)
    pairs = torch.stack([ring, ring.roll(1, dims=1)]).flatten(1)
    index = order[torch.cat([pairs, pairs.flip(0)], dim=1)]
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=300)
    by_metis = [ClusterData(data, 2), ClusterData(data, 2, recursive=True)]
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    streamed = ClusterData(data, 2)
    for own, kept in ((by_metis[0], 0.95), (by_metis[1], 0.95), (streamed, 0.6)):
        assert int(own.partition.partptr.diff().max()) <= 155
        assert own[0].num_edges + own[1].num_edges > kept * len(index[0])


def test_a_list_with_a_value_for_each_node_is_cut_too() -> None:
    data = homogeneous()
    data.names = [f"n{node}" for node in range(NUM_NODES)]
    clusters = ClusterData(data, PARTS)
    assert [name for place in range(PARTS) for name in clusters[place].names] == [
        f"n{node}" for node in clusters.partition.node_perm.tolist()
    ]


@pytest.mark.since_torch("2.6")
def test_clusters_are_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = homogeneous()
    first = ClusterData(data, PARTS, save_dir=str(tmp_path))
    path = tmp_path / "part_4" / "metis.pt"
    assert path.exists()
    ClusterData(data, PARTS, recursive=True, save_dir=str(tmp_path), filename="mine.pt")
    assert (tmp_path / "part_4_recursive" / "mine.pt").exists()
    monkeypatch.setattr(clusters, "assign_clusters", None)
    second = ClusterData(data, PARTS, save_dir=str(tmp_path))
    assert str(second.partition) == str(first.partition)
    # PyG's own file does as well.
    theirs = pygs(data, first, monkeypatch)
    torch.save(theirs.partition, path)
    assert str(ClusterData(data, PARTS, save_dir=str(tmp_path)).partition) == str(first.partition)


@pytest.mark.parametrize("wrong", ["other graph", "twice", "beyond", "falling", "objects", "damaged"])
def test_a_file_that_does_not_fit_is_refused(wrong: str, tmp_path: Path) -> None:
    data = homogeneous()
    fields: dict[str, Any] = dict(vars(ClusterData(data, PARTS, save_dir=str(tmp_path)).partition))
    path = tmp_path / "part_4" / "metis.pt"
    if wrong == "other graph":
        data.edge_index = data.edge_index[:, :-1]
    elif wrong == "twice":
        fields["node_perm"][0] = fields["node_perm"][1]
    elif wrong == "beyond":
        fields["index"][7] = NUM_NODES
    elif wrong == "falling":
        fields["indptr"][3] = NUM_EDGES
    torch.save({"indptr": Path("x")} if wrong == "objects" else fields, path)
    if wrong == "damaged":
        path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"metis.pt (must hold 4 clusters of 60 nodes|can't be read)"):
        ClusterData(data, PARTS, save_dir=str(tmp_path))


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
def test_batches_are_pygs_for_the_same_clusters(sparse_format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_edges_that_join_clusters_of_a_batch_are_there() -> None:
    data = homogeneous()
    (batch,) = ClusterLoader(ClusterData(data, PARTS), batch_size=PARTS)
    assert batch.e_id.sort().values.tolist() == list(range(data.num_edges))


def test_ids_are_right_where_there_are_as_many_nodes_as_edges() -> None:
    index = torch.stack([torch.arange(30), torch.arange(30).roll(1)])
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, x=torch.arange(30.0))
    for batch in ClusterLoader(ClusterData(data, PARTS), batch_size=2):
        assert torch.equal(batch.n_id[batch.edge_index], index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id])


def test_the_nodes_of_the_parts_follow_each_other() -> None:
    parts = [take_parts((0, 3, 3, 5), MiniBatch(seeds=torch.tensor(seeds))) for seeds in ([2, 0], [1])]
    assert [part.input_nodes.tolist() for part in parts] == [[3, 4, 0, 1, 2], []]
    assert all(part.seeds is None for part in parts)
