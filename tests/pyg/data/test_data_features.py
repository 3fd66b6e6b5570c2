import numpy as np
import pytest
import torch

from graphfeed.pyg import NeighborLoader
from graphfeed.pyg.data.data_features import read_features
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import heterogeneous, homogeneous


def test_what_belongs_to_nodes_and_edges_is_fetched_and_the_rest_stays() -> None:
    data = homogeneous()
    found = read_features(data)
    assert found.node_names == {None: ["x", "y", "time", "train_mask"]}
    assert found.edge_names == {None: ["edge_attr", "weight", "edge_time"]}
    assert found.template.name == "random"
    assert set(found.template.keys()) == set(data.keys())
    assert all(found.template[name] == () for name in data.keys() if name != "name")  # noqa: SIM118
    assert data.x is not None


def test_memory_is_shared_with_the_data() -> None:
    data = homogeneous()
    rows = read_features(data).store["node", None, "x"].read()
    assert rows.data_ptr() == data.x.data_ptr()


def test_with_types() -> None:
    found = read_features(heterogeneous())
    assert found.node_names == {"user": ["x", "time", "y"], "item": ["x", "time"]}
    assert found.edge_names["user:likes:item"] == ["edge_attr"]


def test_values_may_be_arrays_or_have_nodes_in_another_dimension() -> None:
    data = homogeneous()
    data.array = np.arange(60)
    data.some_index = torch.arange(120).view(2, 60)
    found = read_features(data)
    assert found.store.read("node", None, "array", torch.tensor([7])).tolist() == [[7]]
    assert found.store.read("node", None, "some_index", torch.tensor([7])).tolist() == [[7, 67]]
    assert found.dims[None, "some_index"] == 1


def test_lists_and_sparse_adjacency_are_refused() -> None:
    data = homogeneous()
    data.names = [str(place) for place in range(60)]
    with pytest.raises(TypeError, match="'names' has one value for each node or edge, but is"):
        read_features(data)
    sparse = import_pyg("torch_geometric.data", "tests").Data(x=torch.eye(2), adj_t=torch.eye(2).to_sparse())
    with pytest.raises(ValueError, match="'adj_t'"):
        read_features(sparse)


def test_what_belongs_to_a_whole_graph_with_types_stays() -> None:
    data = heterogeneous()
    data.meta, data.scale = "hello", torch.tensor([3.0])
    assert read_features(data).template.meta == "hello"
    batch = next(iter(NeighborLoader(data, [2], "user", batch_size=4)))
    assert (batch.meta, batch.scale.item()) == ("hello", 3.0)
    assert torch.equal(batch["user"].x, data["user"].x[batch["user"].n_id])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")  # torch's own
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sparse_features_are_refused(layout: str) -> None:
    data = homogeneous()
    data.x = data.x.to_sparse(layout=getattr(torch, layout))
    with pytest.raises(TypeError, match=f"'x' is sparse .torch.{layout}., but"):
        read_features(data)


def test_features_that_require_a_gradient_are_refused() -> None:
    data = heterogeneous()
    data["user", "likes", "item"].edge_attr = torch.ones(120, requires_grad=True)
    with pytest.raises(ValueError, match="'edge_attr' of 'user:likes:item' requires a gradient"):
        read_features(data)
    data["user", "likes", "item"].edge_attr = data["user", "likes", "item"].edge_attr.detach()
    assert read_features(data).edge_names["user:likes:item"] == ["edge_attr"]
