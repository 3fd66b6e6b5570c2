"""The arguments of torch's `DataLoader`, and samplers that set the order of the seeds."""

import json
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler

from graphfeed.pyg import ImbalancedSampler, NeighborLoader
from graphfeed.pyg.data import import_pyg
from graphfeed.pyg.loaders import TorchOptions
from tests.kinds.neighborhood import homogeneous, values_of


def make(**options: Any) -> NeighborLoader:
    return NeighborLoader(homogeneous(), [2], **options)


def seeds_of(loader: Any) -> list[int]:
    return [node for batch in loader for node in batch.n_id[: batch.batch_size].tolist()]


def test_batch_size_and_drop_last() -> None:
    assert [batch.batch_size for batch in make(batch_size=25)] == [25, 25, 10]
    assert [batch.batch_size for batch in make(batch_size=25, drop_last=True)] == [25, 25]
    assert len(make()) == 60


def test_shuffling_gives_another_order_in_each_epoch() -> None:
    loader = make(shuffle=True, batch_size=25)
    orders = [seeds_of(loader), seeds_of(loader)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(60))


def test_a_generator_gives_the_seed() -> None:
    one, same, other = (make(generator=torch.Generator().manual_seed(seed), shuffle=True) for seed in (1, 1, 2))
    assert seeds_of(one) == seeds_of(same) != seeds_of(other)


def test_without_windows_each_mini_batch_is_sampled_alone() -> None:
    alone, together = make(window=0, seed=1, batch_size=7), make(seed=1, batch_size=7)
    assert "SampleTogether" in together.explain()
    assert "SampleTogether" not in alone.explain()
    assert list(map(values_of, alone)) == list(map(values_of, together))
    with pytest.raises(ValueError, match="window"):
        make(window=-1)


def test_torchs_seed_does_so_otherwise() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append([values_of(batch) for batch in make(shuffle=True, batch_size=30)])
    assert found[0] == found[1]


def test_what_changes_nothing_is_accepted() -> None:
    every: list[dict[str, Any]] = [
        {"collate_fn": print},
        {"dataset": [1]},
        {"is_sorted": True},
        {"pin_memory": False, "pin_memory_device": "cuda"},
        {"in_order": False},
        {"persistent_workers": False, "num_workers": 1},
        {"prefetch_factor": 3, "num_workers": 2},
        {"timeout": 30, "num_workers": 1},
        {"timeout": 0},
    ]
    expected = [values_of(batch) for batch in make(batch_size=20, seed=0)]
    for options in every:
        with make(batch_size=20, seed=0, **options) as loader:
            assert [values_of(batch) for batch in loader] == expected, options


def test_every_argument_of_torchs_loader_is_known() -> None:
    names = set(torch.utils.data.DataLoader.__init__.__annotations__) - {"return"}
    assert names - set(TorchOptions.__dataclass_fields__) == set()


class Rising:
    """Yields the positions starting at the epoch's number."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.epoch, 10))

    def __len__(self) -> int:
        return 10 - self.epoch


class Shuffled(RandomSampler):
    """Shuffles with its own generator, and counts how often it is read."""

    def __init__(self, seed: int, count: int = 60) -> None:
        super().__init__(range(count), generator=torch.Generator().manual_seed(seed))
        self.reads = 0

    def __iter__(self) -> Iterator[int]:
        self.reads += 1
        return super().__iter__()


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


def test_a_sampler_with_a_generator_of_its_own_is_read_once_per_epoch() -> None:
    several: list[dict[str, Any]] = [{"num_workers": 1}, {"num_workers": 3, "filter_per_worker": False}]
    for options in several:
        inline, sampler = shuffled_loader(1), Shuffled(1)
        with NeighborLoader(homogeneous(), [1], batch_size=8, seed=3, sampler=sampler, **options) as loader:
            for epoch in range(2):
                pairs = list(zip(inline, loader, strict=True))
                assert all(torch.equal(one.input_id, other.input_id) for one, other in pairs)
                assert all(torch.equal(one.n_id, other.n_id) for one, other in pairs)
                assert sorted(torch.cat([other.input_id for _, other in pairs]).tolist()) == list(range(60))
                assert sampler.reads == epoch + 1


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


def test_an_epoch_goes_on_only_in_the_order_that_it_began_with() -> None:
    for num_workers in [0, 2]:
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
            with pytest.raises(ValueError, match="order of epoch 0 differs from the one in state_dict"):
                seeds(other)
            del state["order"]
            other.load_state_dict(state)
            assert len(seeds(other)) == len(whole) - 2


def test_an_epoch_in_the_order_of_a_sampler_does_not_go_on_without_one() -> None:
    loader = shuffled_loader(1)
    next(iter(loader))
    state = {name: value for name, value in loader.state_dict().items() if name != "fingerprint"}
    other = NeighborLoader(homogeneous(), [1], batch_size=8, seed=state["seed"])
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="order of epoch 0 differs from the one in state_dict"):
        seeds(other)


PYG = import_pyg("torch_geometric.data", "tests")

LABELS = torch.tensor([0] * 90 + [2] * 9 + [5])


def test_each_class_is_as_frequent_as_any_other_and_so_is_each_of_its_members() -> None:
    torch.manual_seed(0)
    drawn = torch.tensor(list(ImbalancedSampler(LABELS, num_samples=30000)))
    counts = LABELS[drawn].bincount(minlength=6)
    assert counts[[1, 3, 4]].tolist() == [0, 0, 0]
    expected = torch.where(LABELS == 0, 10000 / 90, torch.where(LABELS == 2, 10000 / 9, 10000.0))
    chi_square = ((drawn.bincount(minlength=100) - expected) ** 2 / expected).sum()
    assert chi_square < 149  # the quantile 0.999 of 99 degrees of freedom


def test_positions_are_those_among_the_seeds_of_the_loader() -> None:
    data = homogeneous()
    data.y = (data.train_mask & (torch.arange(60) > 30)).long()
    sampler = ImbalancedSampler(data, input_nodes=data.train_mask)
    assert len(sampler) == len(list(sampler)) == int(data.train_mask.sum())
    loader = NeighborLoader(data, [1], data.train_mask, batch_size=4, sampler=sampler, seed=0)
    for batch in loader:
        assert bool(data.train_mask[batch.n_id[: batch.batch_size]].all())


def test_graphs_of_a_data_set_are_drawn_by_their_labels() -> None:
    graphs = [PYG.Data(y=torch.tensor([label])) for label in (0, 0, 1)]
    assert len(ImbalancedSampler(graphs)) == 3
    assert set(ImbalancedSampler(graphs, num_samples=50)) == {0, 1, 2}
    numbers = [PYG.Data(y=label) for label in (0, 0, 1)]
    assert set(ImbalancedSampler(numbers, num_samples=50)) == {0, 1, 2}


def test_it_is_called_once_in_each_worker_and_not_without_workers() -> None:
    called: list[tuple[int, str]] = []

    def note(number: int) -> None:
        called.append((number, threading.current_thread().name))

    data = homogeneous()
    list(NeighborLoader(data, [1], batch_size=5, worker_init_fn=note))
    assert called == []
    with NeighborLoader(data, [1], batch_size=5, worker_init_fn=note, num_workers=2) as loader:
        list(loader)
        list(loader)
    assert 1 <= len(called) <= 2
    assert len({name for _, name in called}) == len({number for number, _ in called}) == len(called)
