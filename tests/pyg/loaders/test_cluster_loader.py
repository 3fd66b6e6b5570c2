from typing import Any

import pytest
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.pyg import ClusterData, ClusterLoader
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.loaders.cluster_loader import take_parts
from tests.pyg.loaders.test_cluster_data import PARTS, pygs
from tests.pyg.neighborhood import NUM_NODES, assert_true, homogeneous, values_of


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


def test_what_is_no_cluster_data_is_refused() -> None:
    with pytest.raises(TypeError, match="cluster_data must be a ClusterData, but is a Data"):
        ClusterLoader(homogeneous())


def test_the_nodes_of_the_parts_follow_each_other() -> None:
    parts = [take_parts((0, 3, 3, 5), MiniBatch(seeds=torch.tensor(seeds))) for seeds in ([2, 0], [1])]
    assert [part.input_nodes.tolist() for part in parts] == [[3, 4, 0, 1, 2], []]
    assert all(part.seeds is None for part in parts)
