"""Loaders of loaders: several zipped ones, and one whose first epoch is kept."""

from typing import Any

import torch

from graphfeed import ItemSampler, ItemSet
from graphfeed.pyg import CachedLoader, LinkNeighborLoader, NeighborLoader, TemporalDataLoader, ZipBatches, ZipLoader
from tests.kinds.neighborhood import around, assert_is, events, heterogeneous, homogeneous, values_of

SEEDS = torch.tensor([9, 4, 7, 30, 31, 32, 50])


def make(**options: Any) -> ZipLoader:
    data = homogeneous()
    loaders = [NeighborLoader(data, [2, 2]), NeighborLoader(data, [2, 2]), LinkNeighborLoader(data, [2])]
    return ZipLoader(loaders, batch_size=16, **{"shuffle": True, "seed": 5, **options})


def test_each_tuple_has_what_the_loaders_give_for_the_same_positions() -> None:
    data, typed = homogeneous(), heterogeneous()
    loaders = [NeighborLoader(data, [-1], SEEDS), NeighborLoader(typed, [-1, -1], ("user", None))]
    loader = ZipLoader(loaders, batch_size=3)
    assert len(loader) == 3
    for place, (first, second) in enumerate(loader):
        low, high = 3 * place, min(3 * place + 3, 7)
        assert_is(first, around(data, {"": SEEDS[low:high].tolist()}, 1))
        assert_is(second, around(typed, {"user": list(range(low, high))}, 2))
    assert loader.loaders == loaders


def test_a_shuffled_order_is_the_same_for_all() -> None:
    for first, second, links in make():
        assert first.input_id.tolist() == second.input_id.tolist() == links.input_id.tolist()
        assert first.input_id.tolist() != sorted(first.input_id.tolist())


def test_a_sampler_with_a_generator_of_its_own_is_read_once_an_epoch() -> None:
    for num_workers in [0, 2]:
        sampler = torch.utils.data.RandomSampler(range(60), generator=torch.Generator().manual_seed(0))
        with make(shuffle=False, sampler=sampler, num_workers=num_workers) as loader:
            orders = []
            for _ in range(2):
                batches = list(loader)
                for first, second, links in batches:
                    assert first.input_id.tolist() == second.input_id.tolist() == links.input_id.tolist()
                orders.append([place for first, _, _ in batches for place in first.input_id.tolist()])
        own = torch.Generator().manual_seed(0)
        assert orders == [list(torch.utils.data.RandomSampler(range(60), generator=own)) for _ in range(2)]


def test_loaders_that_are_alike_draw_apart() -> None:
    first, second, _ = next(iter(make()))
    assert first.e_id.tolist() != second.e_id.tolist()


def test_the_options_of_the_loaders_have_no_effect() -> None:
    calls: list[int] = []
    inner = NeighborLoader(homogeneous(), [1], batch_size=9, shuffle=True, num_workers=2, worker_init_fn=calls.append)
    with ZipLoader([inner, TemporalDataLoader(events(), 3)], batch_size=25, num_workers=1) as loader:
        sizes = [(batch.input_id.tolist(), len(part.t)) for batch, part in loader]
    assert sizes == [(list(range(25)), 25), (list(range(25, 50)), 25)]
    assert calls == []


def test_seeds_of_several_types_are_cut_to_the_shortest() -> None:
    typed = NeighborLoader(heterogeneous(), [1], {"user": None, "item": None})
    ((batch, _),) = ZipLoader([typed, NeighborLoader(homogeneous(), [1], torch.arange(50))], batch_size=50)
    assert (batch["user"].batch_size, batch["item"].batch_size) == (40, 10)


def test_some_positions_can_be_asked_for() -> None:
    data = homogeneous()
    loader = ZipLoader([NeighborLoader(data, [-1], SEEDS), NeighborLoader(data, [-1])])
    first, second = loader([2, 0])
    assert_is(first, around(data, {"": [7, 9]}, 1))
    assert_is(second, around(data, {"": [2, 0]}, 1))


def test_it_is_as_long_as_the_shortest_pipeline() -> None:
    pipes = tuple(ItemSampler(ItemSet(count, names="seeds"), 2) for count in (5, 4))
    joined = ZipBatches(pipes)
    assert len(joined) == 2
    found = [[batch.seeds.tolist() for batch in batches] for batches in joined]
    assert found == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]


def make_loader(num_workers: int = 0) -> NeighborLoader:
    return NeighborLoader(homogeneous(), [2], batch_size=16, shuffle=True, seed=4, num_workers=num_workers)


def epoch(loader: Any) -> list[Any]:
    return [values_of(batch) for batch in loader]


def test_pygs_cached_loader_repeats_the_first_epoch() -> None:
    for num_workers in [0, 2]:
        with make_loader(num_workers) as inner:
            loader = CachedLoader(inner)
            assert len(loader) == 4
            first = epoch(loader)
            assert first == epoch(make_loader())
            assert epoch(loader) == first
