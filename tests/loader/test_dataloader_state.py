"""The state of a loader's ranks: any of them says how far all are, for as many or others to go on."""

import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.distributed import PartBook
from tests import pipelines
from tests.digests import digests


def test_a_copy_begins_the_next_epoch_and_its_state_is_where_the_loader_was() -> None:
    loader = gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=1)
    epoch = iter(loader)
    first = digests(next(epoch) for _ in range(3))
    other = copy.deepcopy(loader)
    state = other.state_dict()
    assert digests(other) == digests(pipelines.shuffled().with_seed(1, 1)) == digests(loader)
    other.load_state_dict(state)
    assert first + digests(other) == digests(pipelines.shuffled().with_seed(1))


def rank_loaders(count: int, world_size: int, **options: Any) -> list[gf.DataLoader]:
    """Return the loaders of all ranks, over so many mini-batches."""
    items = gf.ItemSet(3 * count, names="seeds")
    pipes = [
        gf.DistributedItemSampler(items, 3, shuffle=True, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    return [gf.DataLoader(pipe.transform(), num_workers=0, seed=7) for pipe in pipes]


def keys_of(loader: Iterable[Any]) -> list[tuple[int, ...]]:
    return [tuple(sorted(batch.seeds.tolist())) for batch in loader]


HALVES = PartBook.from_bounds([0, 30, 60])


@pytest.mark.parametrize("owners", [None, HALVES])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (1, 6), (2, 2)])
@pytest.mark.filterwarnings("ignore:owners are of 2 parts")
def test_other_ranks_go_on_where_all_were(before: int, after: int, owners: PartBook | None) -> None:
    options = {} if owners is None else {"owners": owners}
    expected = sorted(keys_of(rank_loaders(20, 1, **options)[0]))
    seen, states = [], []
    for loader in rank_loaders(20, before, **options):
        epoch = iter(loader)
        seen += keys_of(next(epoch) for _ in range(6 // before))
        states.append(json.loads(json.dumps(loader.state_dict())))
    for state in states:
        rest = []
        for loader in rank_loaders(20, after, **options):
            loader.load_state_dict(state)
            rest += keys_of(loader)
        assert sorted(seen + rest) == expected


def test_ranks_that_can_t_share_what_is_left_are_refused() -> None:
    (loader,) = rank_loaders(50, 1)
    epoch = iter(loader)
    keys_of(next(epoch) for _ in range(21))
    state = loader.state_dict()
    with pytest.raises(ValueError, match=r"21 mini-batches .* are no multiple of the 2 ranks here"):
        rank_loaders(50, 2)[0].load_state_dict(state)
    for three in rank_loaders(50, 3):
        three.load_state_dict(state)
        assert three.state_dict()["index"] == 7


@pytest.mark.parametrize("uneven", ["", "pad_uneven_inputs", "drop_uneven_inputs"])
def test_the_last_round_of_ranks_is_over_for_all_of_them_at_once(uneven: str) -> None:
    options = {uneven: True} if uneven else {}
    expected = keys_of(rank_loaders(7, 1)[0])
    two = rank_loaders(7, 2, **options)
    epochs = [iter(loader) for loader in two]
    for made in range(2, 7, 2):
        keys_of(next(epoch) for epoch in epochs)
        for loader in two:
            state, (one,) = loader.state_dict(), rank_loaders(7, 1, **options)
            if made == 6 and uneven == "drop_uneven_inputs":
                assert (state["epoch"], state["index"]) == (1, 0)
            else:
                one.load_state_dict(state)
                assert keys_of(one) == expected[made:]
    for loader, epoch in zip(two, epochs, strict=True):
        assert len(keys_of(epoch)) == len(loader) - 3
        assert (loader.state_dict()["epoch"], loader.state_dict()["index"]) == (1, 0)


def test_a_state_from_before_is_of_as_many_ranks() -> None:
    state = {"seed": 7, "epoch": 0, "index": 4}
    for loader in rank_loaders(20, 2):
        loader.load_state_dict(state)
        assert len(keys_of(loader)) == 6
