import torch

from graphfeed.pyg import NeighborLoader
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
