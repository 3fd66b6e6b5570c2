from importlib import import_module

import torch

from graphfeed.pyg import NeighborLoader, NeighborSampler, ZipLoader
from tests.pyg.neighborhood import around, assert_is, homogeneous


def test_a_mini_batch_of_some_seeds() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [-1], torch.tensor([9, 4, 7]), num_workers=2)
    for given in ([0, 2], torch.tensor([0, 2])):
        batch = loader(given)
        assert_is(batch, around(data, {"": [9, 7]}, 1))
        assert batch.input_id.tolist() == [0, 2]


def test_its_draws_are_random() -> None:
    loader = NeighborLoader(homogeneous(), [2], seed=1)
    found = {tuple(loader(range(60)).e_id.tolist()) for _ in range(5)}
    assert len(found) > 1


def test_what_it_was_made_of_is_there() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2])
    assert loader.data is data
    assert loader.pipeline is loader.plan.written


def test_it_says_what_torchs_loader_says_of_its_seeds() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), batch_size=2, drop_last=True)
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), 2, True)
    assert loader.node_sampler.num_neighbors == [2]
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), sampler=[2, 0], batch_size=2)
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), 2, False)
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), batch_sampler=[[2, 0], [1]])
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), None, False)
    zipped = ZipLoader([loader, NeighborLoader(data, [2], torch.tensor([5, 6]))], batch_size=2)
    assert (zipped.dataset, zipped.batch_size) == (range(2), 2)


def test_inference_layer_by_layer_takes_pygs_loader_with_our_sampler() -> None:
    data = homogeneous()
    model = import_module("torch_geometric.nn").GraphSAGE(data.x.shape[1], 4, num_layers=2, out_channels=3).eval()
    theirs = import_module("torch_geometric.loader").NeighborLoader
    loader = theirs(data, [-1], neighbor_sampler=NeighborSampler(data, [-1]), batch_size=7)
    with torch.no_grad():
        found, wanted = model.inference(loader), model(data.x, data.edge_index)
    torch.testing.assert_close(found, wanted)
