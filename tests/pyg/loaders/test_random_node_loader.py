import pytest
import torch

from graphfeed.pyg import RandomNodeLoader
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import KINDS, SIZES, assert_true, heterogeneous, homogeneous


def test_parts_are_those_of_pyg_in_order() -> None:
    data = homogeneous()
    ours, theirs = RandomNodeLoader(data, 7), import_pyg("torch_geometric.loader", "tests").RandomNodeLoader(data, 7)
    assert len(ours) == len(theirs) == 7
    for own, other in zip(ours, theirs, strict=True):
        assert_true(data, own)
        order = own.e_id.argsort()
        assert own.edge_index[:, order].tolist() == other.edge_index.tolist()
        assert own.edge_attr[order].tolist() == other.edge_attr.tolist()
        for name in ("x", "y", "train_mask", "time"):
            assert torch.equal(own[name], other[name])


def test_parts_of_data_with_types_are_those_of_pyg_in_order() -> None:
    data = heterogeneous()
    ours, theirs = RandomNodeLoader(data, 4), import_pyg("torch_geometric.loader", "tests").RandomNodeLoader(data, 4)
    for own, other in zip(ours, theirs, strict=True):
        assert_true(data, own)
        for kind in SIZES:
            assert torch.equal(own[kind].x, other[kind].x)
        for edge_type in KINDS:
            order = own[edge_type].e_id.argsort()
            assert own[edge_type].edge_index[:, order].tolist() == other[edge_type].edge_index.tolist()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_shuffled_parts_have_each_node_once_and_all_edges_inside(num_workers: int) -> None:
    data, found = homogeneous(), []
    with RandomNodeLoader(data, 3, shuffle=True, seed=1, num_workers=num_workers) as loader:
        for batch in loader:
            assert_true(data, batch)
            inside = torch.isin(data.edge_index, batch.n_id).all(dim=0).nonzero().squeeze(1)
            assert batch.e_id.sort().values.tolist() == inside.tolist()
            found += batch.n_id.tolist()
    assert found != sorted(found)
    assert sorted(found) == list(range(60))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="num_parts must be"):
        RandomNodeLoader(homogeneous(), 0)
    with pytest.raises(TypeError, match="batch_size"):
        RandomNodeLoader(homogeneous(), 2, batch_size=3)
