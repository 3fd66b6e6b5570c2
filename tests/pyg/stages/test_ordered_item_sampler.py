import json
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler

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


class Shuffled(RandomSampler):
    """Shuffles by a generator of its own, and counts how often it was read."""

    def __init__(self, seed: int, count: int = 60) -> None:
        super().__init__(range(count), generator=torch.Generator().manual_seed(seed))
        self.reads = 0

    def __iter__(self) -> Iterator[int]:
        self.reads += 1
        return super().__iter__()


class Weighed(Executor):
    """Computes in `submit` itself, and notes the bytes of what it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sizes.append(len(pickle.dumps((fn, args, kwargs))))
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def shuffled_loader(seed: int, **options: Any) -> NeighborLoader:
    return NeighborLoader(homogeneous(), [1], batch_size=8, seed=3, sampler=Shuffled(seed), **options)


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


def test_a_position_that_there_is_not_is_refused() -> None:
    with pytest.raises(IndexError, match="out of range"):
        seeds(NeighborLoader(homogeneous(), [1], sampler=[70]))
    assert torch.is_tensor(next(iter(NeighborLoader(homogeneous(), [1], sampler=[7]))).x)


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 3, "filter_per_worker": False}])
def test_a_sampler_with_a_generator_of_its_own_is_read_once_per_epoch(options: dict[str, Any]) -> None:
    inline, sampler = shuffled_loader(1), Shuffled(1)
    with NeighborLoader(homogeneous(), [1], batch_size=8, seed=3, sampler=sampler, **options) as loader:
        for epoch in range(2):
            pairs = list(zip(inline, loader, strict=True))
            assert all(torch.equal(one.input_id, other.input_id) for one, other in pairs)
            assert all(torch.equal(one.n_id, other.n_id) for one, other in pairs)
            assert sorted(torch.cat([other.input_id for _, other in pairs]).tolist()) == list(range(60))
            assert sampler.reads == epoch + 1


@pytest.mark.slow
@pytest.mark.parametrize("batched", [False, True])
def test_worker_processes_make_the_same_of_it(batched: bool) -> None:
    found = []
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}):
        order: Any = {"batch_sampler": BatchSampler(Shuffled(1), 7, False)} if batched else {"sampler": Shuffled(1)}
        with NeighborLoader(homogeneous(), [1], seed=3, **order, **options) as loader:
            found.append([seeds(loader) for _ in range(2)])
    assert found[0] == found[1] == found[2]
    assert all(sorted(seed for batch in epoch for seed in batch) == list(range(60)) for epoch in found[0])


def test_what_workers_are_sent_does_not_grow_with_the_set() -> None:
    sizes = []
    for count in (40, 4000):
        order, executor = torch.arange(count) % 60, Weighed()
        options: dict[str, Any] = {"num_workers": 1, "executor": executor}
        nodes = torch.arange(count) % 60
        loader = NeighborLoader(homogeneous(), [1], nodes, batch_size=10, sampler=order.tolist(), **options)
        next(iter(loader))
        sizes.append(max(executor.sizes))
    assert sizes[1] < sizes[0] + 10_000


def test_a_pipeline_that_has_read_its_order_pickles_small() -> None:
    order = [place % 60 for place in range(3000)]
    pipe = NeighborLoader(homogeneous(), [1], batch_size=2, sampler=order).pipeline
    assert len(pickle.dumps(pipe.with_seed(0))) < len(pickle.dumps(pipe)) + 2 * 8 * len(order)
    assert len(list(pipe.with_seed(0, start=1490))) == 10


def test_an_epoch_without_positions_is_empty() -> None:
    with NeighborLoader(homogeneous(), [1], batch_size=4, sampler=[1, 2], drop_last=True) as loader:
        assert list(loader) == []
    with NeighborLoader(homogeneous(), [1], batch_sampler=[]) as loader:
        assert list(loader) == []


def test_planning_does_not_read_the_sampler() -> None:
    sampler = Shuffled(1)
    loader = NeighborLoader(homogeneous(), [1], batch_size=8, sampler=sampler, num_workers=2)
    assert "OrderedItemSampler" in loader.explain()
    assert sampler.reads == 0
    assert len(loader(torch.tensor([5, 7])).input_id) == 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_goes_on_only_in_the_order_that_it_began_with(num_workers: int) -> None:
    whole, loader = seeds(shuffled_loader(1)), shuffled_loader(1)
    begun = iter(loader)
    assert [next(begun).input_id.tolist() for _ in range(2)] == whole[:2]
    state = json.loads(json.dumps(loader.state_dict()))
    with shuffled_loader(1, num_workers=num_workers) as same:
        same.load_state_dict(state)
        assert same.state_dict() == state
        assert seeds(same) == whole[2:]
        assert "order" not in same.state_dict()
    with shuffled_loader(2, num_workers=num_workers) as other:
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="another order of epoch 0 than the one in state_dict"):
            seeds(other)
        del state["order"]
        other.load_state_dict(state)
        assert len(seeds(other)) == len(whole) - 2
