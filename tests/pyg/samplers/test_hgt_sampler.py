import pytest
import torch

from graphfeed.pyg import HGTSampler
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import assert_true, heterogeneous


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


def test_edges_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="sample around edges with NeighborSampler"):
        HGTSampler(heterogeneous(), [2]).sample_from_edges(None)
