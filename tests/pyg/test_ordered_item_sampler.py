from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, WeightedRandomSampler

from graphfeed.pyg import NeighborLoader
from tests.pyg.neighborhood import homogeneous


class Rising:
    """Gives the positions from the epoch on, one fewer in each."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.epoch, 10))

    def __len__(self) -> int:
        return 10 - self.epoch


def seeds(loader: Any) -> list[list[int]]:
    return [batch.input_id.tolist() for batch in loader]


def test_seeds_come_in_the_order_of_the_sampler_in_each_epoch() -> None:
    loader = NeighborLoader(homogeneous(), [1], batch_size=4, sampler=Rising())
    assert seeds(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert seeds(loader) == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    loader = NeighborLoader(homogeneous(), [1], batch_size=4, sampler=Rising(), drop_last=True)
    assert len(loader) == 2
    assert seeds(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_batch_sampler_says_which_seeds_come_together() -> None:
    loader = NeighborLoader(homogeneous(), [1], batch_sampler=BatchSampler(Rising(), 3, drop_last=False))
    assert len(loader) == 4
    assert seeds(loader)[0] == [0, 1, 2]


def test_random_orders_depend_on_the_seed_and_the_epoch_alone() -> None:
    found = []
    for num_workers in (0, 1, 3):
        sampler = WeightedRandomSampler([1.0] * 60, 30)
        options: dict[str, Any] = {"batch_size": 8, "seed": 3, "num_workers": num_workers}
        with NeighborLoader(homogeneous(), [1], sampler=sampler, **options) as loader:
            found.append([seeds(loader) for _ in range(2)])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


def test_it_goes_on_in_the_middle() -> None:
    def make() -> NeighborLoader:
        return NeighborLoader(homogeneous(), [1], batch_size=8, seed=3, sampler=WeightedRandomSampler([1.0] * 60, 30))

    whole, loader = seeds(make()), make()
    next(iter(loader))
    other = make()
    other.load_state_dict(loader.state_dict())
    assert seeds(other) == whole[1:]


def test_a_position_that_there_is_not_is_refused() -> None:
    with pytest.raises(IndexError, match="out of range"):
        seeds(NeighborLoader(homogeneous(), [1], sampler=[70]))
    assert torch.is_tensor(next(iter(NeighborLoader(homogeneous(), [1], sampler=[7]))).x)
