"""Ranks get the items whose nodes they own: each item once, as many as ever, whoever makes the mini-batches."""

import json
import pickle
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.datapipes.sources import items_by_owner
from graphfeed.datapipes.sources.items_by_owner import group_items
from graphfeed.distributed import PartBook
from graphfeed.ops import fold
from tests import pipelines
from tests.digests import digests

SEED = 5
OWNERS = st.integers(1, 5).flatmap(
    lambda parts: st.tuples(st.just(parts), st.lists(st.integers(0, parts - 1), min_size=1, max_size=60))
)


def book_of(parts: Sequence[int], num_parts: int) -> PartBook:
    return PartBook.from_assignment(torch.tensor(parts), num_parts)


def sampler(parts: Sequence[int], num_parts: int, rank: int, batch_size: int = 4, **more: Any) -> Any:
    items = gf.ItemSet(len(parts), names="seeds")
    given: dict[str, Any] = {"world_size": num_parts, "owners": book_of(parts, num_parts)} | more
    return gf.DistributedItemSampler(items, batch_size, rank=rank, **given)


def seeds_of(pipe: Any) -> list[list[int]]:
    return [batch.seeds.tolist() for batch in pipe]


def orders(parts: Sequence[int], num_parts: int, key: int | None) -> list[list[int]]:
    """Return the items that each part owns, in the order of an epoch."""
    owned = [[item for item, part in enumerate(parts) if part == own] for own in range(num_parts)]
    if key is None:
        return owned
    return [
        [items[place] for place in gf.ops.permute(0, len(items), len(items), fold(key, part)).tolist()]
        for part, items in enumerate(owned)
    ]


def slow_batches(parts: Sequence[int], num_parts: int, batch_size: int, key: int | None) -> list[list[list[int]]]:
    """Return the mini-batches of each part: its first items, and from the surplus of all what it has too little."""
    sizes = [0] * num_parts
    for number, low in enumerate(range(0, len(parts), batch_size)):
        sizes[number % num_parts] += min(batch_size, len(parts) - low)
    owned = orders(parts, num_parts, key)
    surplus = list(chain.from_iterable(own[size:] for own, size in zip(owned, sizes, strict=True)))
    found = []
    for own, size in zip(owned, sizes, strict=True):
        kept, lacking = own[:size], max(size - len(own), 0)
        others, surplus = surplus[:lacking], surplus[lacking:]
        batches = []
        for low in range(0, size, batch_size):
            high = min(low + batch_size, size)
            first, last = low * lacking // size, high * lacking // size
            batches.append(kept[low - first : high - last] + others[first:last])
        found.append(batches)
    return found


@given(given_parts=OWNERS, batch_size=st.integers(1, 9), shuffle=st.booleans())
def test_a_rank_gets_what_it_owns_and_each_item_comes_once(
    given_parts: tuple[int, list[int]], batch_size: int, shuffle: bool
) -> None:
    num_parts, parts = given_parts
    pipes = [sampler(parts, num_parts, rank, batch_size, shuffle=shuffle, seed=SEED) for rank in range(num_parts)]
    found = [seeds_of(pipe) for pipe in pipes]
    assert found == slow_batches(parts, num_parts, batch_size, pipes[0].all_ranks.order_key)
    assert sorted(chain.from_iterable(chain.from_iterable(found))) == list(range(len(parts)))
    for rank, batches in enumerate(found):
        own = sum(parts[item] == rank for item in chain.from_iterable(batches))
        assert own == min(parts.count(rank), sum(map(len, batches))), "as many of its own as there is room for"


@given(
    given_parts=OWNERS,
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    even=st.sampled_from([{}, {"drop_uneven_inputs": True}, {"pad_uneven_inputs": True}]),
)
def test_mini_batches_are_as_many_and_as_large_as_without_owners(
    given_parts: tuple[int, list[int]], batch_size: int, drop_last: bool, even: dict[str, bool]
) -> None:
    num_parts, parts = given_parts
    for rank in range(num_parts):
        own, plain = (
            sampler(parts, num_parts, rank, batch_size, drop_last=drop_last, **even, **more)
            for more in ({}, {"owners": None})
        )
        assert len(own) == len(plain)
        assert [len(batch) for batch in seeds_of(own)] == [len(batch) for batch in seeds_of(plain)]


def test_any_number_of_ranks_makes_the_same_mini_batches() -> None:
    parts = (torch.arange(90) % 7 % 3).tolist()
    one = digests(sampler(parts, 3, 0, shuffle=True, world_size=1).with_seed(SEED, 2))
    for size in (1, 2, 3, 4):
        others = size not in (1, 3)
        with pytest.warns(UserWarning, match=f"3 parts, but there are {size}") if others else nullcontext():
            pipes = [sampler(parts, 3, rank, shuffle=True, world_size=size) for rank in range(size)]
            shares = [digests(pipe.with_seed(SEED, 2)) for pipe in pipes]
        assert [shares[index % size][index // size] for index in range(len(one))] == one, size


def test_the_order_and_the_surplus_are_others_in_each_epoch() -> None:
    pipes = [sampler([0] * 60 + [1] * 20, 2, rank, 10, shuffle=True) for rank in range(2)]
    epochs = [[seeds_of(pipe.with_seed(SEED, epoch)) for pipe in pipes] for epoch in range(3)]
    moved = [frozenset(seed for batch in epoch[1] for seed in batch if seed < 60) for epoch in epochs]
    assert [len(seeds) for seeds in moved] == [20] * 3
    assert len(set(moved)) == 3
    assert all(sum(seed < 60 for seed in batch) == 5 for epoch in epochs for batch in epoch[1])
    assert [seeds_of(pipe.with_seed(SEED, 1)) for pipe in pipes] == epochs[1]


def make_pipe(rank: int, world_size: int = 2, kept: int = 3) -> gf.Datapipe:
    """Return a pipeline with seeds of two parts, of which one owns every fourth node, or another share."""
    book = PartBook.from_assignment((torch.arange(pipelines.NUM_NODES) % (kept + 1) == 0).int())
    given: dict[str, Any] = {"shuffle": True, "rank": rank, "world_size": world_size, "owners": book}
    return pipelines.with_items(
        pipelines.homogeneous(), lambda items: gf.DistributedItemSampler(items.item_set, 32, **given)
    )


def test_a_loader_shards_and_resumes_it() -> None:
    expected = digests(make_pipe(1).with_seed(SEED))
    for num_workers in (0, 3):
        with gf.DataLoader(make_pipe(1), num_workers=num_workers, seed=SEED) as loader:
            assert digests(loader) == expected
            loader.load_state_dict({"seed": SEED, "epoch": 0, "index": 3})
            assert digests(loader) == expected[3:]
        assert "owners=<2 parts>" in loader.explain()


def test_a_state_goes_on_with_the_same_parts_alone() -> None:
    loaders = [gf.DataLoader(make_pipe(0, **given), 0, seed=SEED) for given in ({}, {"world_size": 1}, {"kept": 2})]
    state = json.loads(json.dumps(loaders[0].state_dict()))
    loaders[1].load_state_dict(state)
    with pytest.raises(ValueError, match=r"owners of stage 1 DistributedItemSampler is ItemsByOwner of"):
        loaders[2].load_state_dict(state)


def test_it_pickles_small() -> None:
    items = gf.ItemSet(100_000, names="seeds")
    book = PartBook.from_bounds([0, 70_000, 100_000])
    pipe = gf.DistributedItemSampler(items, 1000, shuffle=True, rank=1, world_size=2, seed=3, owners=book)
    sent = pickle.dumps(pipe)
    assert len(sent) < 4096
    copy = pickle.loads(sent)
    assert digests(copy) == digests(pipe)


def test_edges_belong_to_the_part_of_their_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items_by_owner, "PIECE", 2)
    edges = torch.tensor([[0, 3], [3, 0], [1, 2], [2, 1], [0, 1]])
    pipes = [
        gf.DistributedItemSampler(
            gf.ItemSet((torch.arange(5), edges), names=("labels", "seeds")), 2, rank=rank, world_size=2,
            owners=PartBook.from_bounds([0, 2, 4]),
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [[batch.labels.tolist() for batch in pipe] for pipe in pipes] == [[[1, 3], [4]], [[0, 2]]]


def test_types_have_owners_of_their_own() -> None:
    books = {"user": PartBook.from_bounds([0, 1, 4]), "item": PartBook.from_bounds([0, 3, 4])}
    users = gf.HeteroItemSet({"user": gf.ItemSet(4, names="seeds"), "item": gf.ItemSet(4, names="seeds")})
    edges = gf.HeteroItemSet({"user:likes:item": gf.ItemSet(torch.tensor([[0, 3], [3, 0]]), names="seeds")})
    assert group_items(users, books).order.tolist() == [0, 4, 5, 6, 1, 2, 3, 7]
    assert group_items(edges, books).order.tolist() == [1, 0]
