"""Ranks divide one sampler's mini-batches, or each rank gets the items whose nodes it owns."""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartBook
from graphfeed.ops import fold
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests

SEED = 5


def sampler(total: int, batch_size: int, rank: int | None, world_size: int | None, **more: Any) -> Any:
    items = gf.ItemSet(torch.arange(total), names="seeds")
    return gf.DistributedItemSampler(items, batch_size, rank=rank, world_size=world_size, **more)


def seeds_of(pipe: Any) -> list[list[int]]:
    return [batch.seeds.tolist() for batch in pipe]


def count_split(total: int, num_workers: int, worker_id: int, batch_size: int) -> int:
    """Distribute full batches evenly, one more to the first ranks; the rest follows the last full batch."""
    full, rest = divmod(total, batch_size)
    each, more = divmod(full, num_workers)
    return each * batch_size + (batch_size if worker_id < more else 0) + (rest if worker_id == more else 0)


def calculate_range(total: int, ranks: int, rank: int, batch_size: int, drop_last: bool, drop_uneven: bool) -> int:
    """Return the number of items of a rank, counted like in GraphBolt."""
    own, last = (count_split(total, ranks, place, batch_size) for place in (rank, ranks - 1))
    if drop_uneven and drop_last:
        return total // (batch_size * ranks) * batch_size
    if drop_uneven:
        return min(-(-last // batch_size) * batch_size, own)
    return own // batch_size * batch_size if drop_last else own


@given(
    total=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    ranks=st.integers(1, 6),
    drop_last=st.booleans(),
    drop_uneven=st.booleans(),
    shuffle=st.booleans(),
)
def test_counts_are_those_of_graphbolt(
    total: int, batch_size: int, ranks: int, drop_last: bool, drop_uneven: bool, shuffle: bool
) -> None:
    options = {"drop_last": drop_last, "drop_uneven_inputs": drop_uneven, "shuffle": shuffle}
    pipes = [sampler(total, batch_size, rank, ranks, **options) for rank in range(ranks)]
    batches = [seeds_of(pipe) for pipe in pipes]
    for rank, (pipe, own) in enumerate(zip(pipes, batches, strict=True)):
        assert len(pipe) == len(own)
        assert sum(map(len, own)) == calculate_range(total, ranks, rank, batch_size, drop_last, drop_uneven)
    seen = [seed for own in batches for batch in own for seed in batch]
    assert len(seen) == len(set(seen))
    if not (drop_last or drop_uneven):
        assert sorted(seen) == list(range(total))
    if drop_uneven:
        assert len({len(pipe) for pipe in pipes}) == 1


def test_any_number_of_ranks_makes_the_mini_batches_of_one() -> None:
    items = gf.ItemSet(torch.arange(50), names="seeds")
    one = digests(gf.ItemSampler(items, 4, shuffle=True).with_seed(SEED, 2))
    for ranks in (1, 2, 3, 5):
        shares = [digests(sampler(50, 4, rank, ranks, shuffle=True).with_seed(SEED, 2)) for rank in range(ranks)]
        assert [shares[index % ranks][index // ranks] for index in range(len(one))] == one, ranks


def test_padding_gives_each_rank_as_many() -> None:
    shares = [seeds_of(sampler(9, 2, rank, 3, pad_uneven_inputs=True)) for rank in range(3)]
    assert shares == [[[0, 1], [6, 7]], [[2, 3], [8]], [[4, 5], [0, 1]]]
    few = [seeds_of(sampler(2, 2, rank, 3, pad_uneven_inputs=True)) for rank in range(3)]
    assert few == [[[0, 1]]] * 3
    assert seeds_of(sampler(1, 2, 0, 3, pad_uneven_inputs=True, drop_last=True)) == []


def make_pipe(rank: int, world_size: int) -> gf.Datapipe:
    given: dict[str, Any] = {"shuffle": True, "rank": rank, "world_size": world_size}
    return pipelines.with_items(
        pipelines.homogeneous(), lambda items: gf.DistributedItemSampler(items.item_set, 32, **given)
    )


def test_another_number_of_ranks_resumes_it() -> None:
    two = [make_pipe(rank, 2).with_seed(SEED) for rank in range(2)]
    before = {digest(batch) for pipe in two for batch in list(pipe)[:2]}
    four = [make_pipe(rank, 4).with_seed(SEED, 0, 1) for rank in range(4)]
    after = {digest(batch) for pipe in four for batch in pipe}
    assert before.isdisjoint(after)
    assert before | after == set(digests(make_pipe(0, 1).with_seed(SEED)))


def test_without_a_process_group_there_is_one_rank() -> None:
    pipe = sampler(10, 4, None, None, shuffle=True)
    items = gf.ItemSet(torch.arange(10), names="seeds")
    assert digests(pipe) == digests(gf.ItemSampler(items, 4, shuffle=True))
    with gf.DataLoader(pipe) as loader:
        assert len(list(loader)) == 3


def test_launched_without_a_process_group_it_does_not_give_every_rank_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = sampler(8, 2, None, None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE says that 4 processes .*init_process_group"):
        next(iter(pipe))
    with pytest.raises(RuntimeError, match="init_process_group"):
        len(sampler(8, 2, None, None))
    assert seeds_of(sampler(8, 2, 1, 4)) == [[2, 3]]
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert len(pipe) == 4


def work_as_rank(rank: int, world_size: int, store: str) -> dict[str, Any]:
    """Do the work of a training rank in a separate process."""
    unset = sampler(10, 1, None, None)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    try:
        torch.manual_seed(rank)
        pipe: Any = gf.DistributedItemSampler(gf.ItemSet(torch.arange(41), names="seeds"), 5, shuffle=True)
        with gf.DataLoader(pipe, num_workers=1) as loader:
            seeds = seeds_of(loader)
            own, later = pipe.rank_and_size, unset.rank_and_size
            found = {"place": own, "seed": loader.seed, "seeds": seeds, "later": later, "count": len(unset)}
        other = gf.DistributedItemSampler(gf.ItemSet(torch.arange(rank, 82, 2), names="seeds"), 5)
        try:
            gf.DataLoader(other, num_workers=0)
        except ValueError as error:
            found["refused"] = str(error)
        return found
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_of_a_process_group_agree(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        futures = [executor.submit(work_as_rank, rank, 2, str(tmp_path / "store")) for rank in range(2)]
        ranks = [future.result(timeout=100) for future in futures]
    assert [rank["place"] for rank in ranks] == [rank["later"] for rank in ranks] == [(0, 2), (1, 2)]
    assert ranks[0]["seed"] == ranks[1]["seed"]
    assert [rank["count"] for rank in ranks] == [5, 5]
    assert "refused" not in ranks[0]
    assert "item_set of rank 1 has other items than that of rank 0" in ranks[1]["refused"]
    assert [len(rank["seeds"]) for rank in ranks] == [5, 4]
    assert sorted(seed for rank in ranks for batch in rank["seeds"] for seed in batch) == list(range(41))


OWNERS = st.integers(1, 5).flatmap(
    lambda parts: st.tuples(st.just(parts), st.lists(st.integers(0, parts - 1), min_size=1, max_size=60))
)


def book_of(parts: Sequence[int], num_parts: int) -> PartBook:
    return PartBook.from_assignment(torch.tensor(parts), num_parts)


def owning(parts: Sequence[int], num_parts: int, rank: int, batch_size: int = 4, **more: Any) -> Any:
    items = gf.ItemSet(len(parts), names="seeds")
    given: dict[str, Any] = {"world_size": num_parts, "owners": book_of(parts, num_parts)} | more
    return gf.DistributedItemSampler(items, batch_size, rank=rank, **given)


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
    """Return the mini-batches of each part: its first items, and those that it lacks from the surplus of all."""
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
    pipes = [owning(parts, num_parts, rank, batch_size, shuffle=shuffle, seed=SEED) for rank in range(num_parts)]
    found = [seeds_of(pipe) for pipe in pipes]
    key = pipes[0].all_ranks.order_key if shuffle else None
    assert found == slow_batches(parts, num_parts, batch_size, key)
    assert sorted(chain.from_iterable(chain.from_iterable(found))) == list(range(len(parts)))
    for rank, batches in enumerate(found):
        own = sum(parts[item] == rank for item in chain.from_iterable(batches))
        assert own == min(parts.count(rank), sum(map(len, batches))), "as many of its items as fit"


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
            owning(parts, num_parts, rank, batch_size, drop_last=drop_last, **even, **more)
            for more in ({}, {"owners": None})
        )
        assert len(own) == len(plain)
        assert [len(batch) for batch in seeds_of(own)] == [len(batch) for batch in seeds_of(plain)]


def test_any_number_of_ranks_makes_the_same_mini_batches() -> None:
    parts = (torch.arange(90) % 7 % 3).tolist()
    one = digests(owning(parts, 3, 0, shuffle=True, world_size=1).with_seed(SEED, 2))
    for size in (1, 2, 3, 4, 6):
        others = size not in (1, 3, 6)
        with pytest.warns(UserWarning, match=f"3 parts, but there are {size}") if others else nullcontext():
            pipes = [owning(parts, 3, rank, shuffle=True, world_size=size) for rank in range(size)]
            shares = {pipe.turn: digests(pipe.with_seed(SEED, 2)) for pipe in pipes}
        assert [shares[index % size][index // size] for index in range(len(one))] == one, size


def test_the_order_and_the_surplus_are_others_in_each_epoch() -> None:
    pipes = [owning([0] * 60 + [1] * 20, 2, rank, 10, shuffle=True) for rank in range(2)]
    epochs = [[seeds_of(pipe.with_seed(SEED, epoch)) for pipe in pipes] for epoch in range(3)]
    moved = [frozenset(seed for batch in epoch[1] for seed in batch if seed < 60) for epoch in epochs]
    assert [len(seeds) for seeds in moved] == [20] * 3
    assert len(set(moved)) == 3
    assert all(sum(seed < 60 for seed in batch) == 5 for epoch in epochs for batch in epoch[1])
    assert [seeds_of(pipe.with_seed(SEED, 1)) for pipe in pipes] == epochs[1]


def owned_pipe(rank: int, world_size: int = 2, kept: int = 3) -> gf.Datapipe:
    """Return a pipeline with seeds of two parts, of which one owns every fourth node, or another share."""
    book = PartBook.from_assignment((torch.arange(pipelines.NUM_NODES) % (kept + 1) == 0).int())
    given: dict[str, Any] = {"shuffle": True, "rank": rank, "world_size": world_size, "owners": book}
    return pipelines.with_items(
        pipelines.homogeneous(), lambda items: gf.DistributedItemSampler(items.item_set, 32, **given)
    )


def test_a_loader_shards_and_resumes_it() -> None:
    expected = digests(owned_pipe(1).with_seed(SEED))
    for num_workers in (0, 3):
        with gf.DataLoader(owned_pipe(1), num_workers=num_workers, seed=SEED) as loader:
            assert digests(loader) == expected
            loader.load_state_dict({"seed": SEED, "epoch": 0, "index": 3})
            assert digests(loader) == expected[3:]
        assert "owners=<2 parts>" in loader.explain()


def test_a_state_goes_on_with_the_same_parts_alone() -> None:
    loaders = [gf.DataLoader(owned_pipe(0, **given), 0, seed=SEED) for given in ({}, {"world_size": 1}, {"kept": 2})]
    state = json.loads(json.dumps(loaders[0].state_dict()))
    loaders[1].load_state_dict(state)
    with pytest.raises(ValueError, match=r"owners of stage 1 DistributedItemSampler is ItemsByOwner of"):
        loaders[2].load_state_dict(state)


@pytest.mark.parametrize("old", [False, True])
def test_a_state_without_owners_is_refused_by_a_loader_with_owners_and_the_other_way_round(old: bool) -> None:
    """A state of an older version does not name the owners, which were added later."""

    def loader_of(owners: PartBook | None) -> gf.DataLoader:
        items = gf.ItemSet(8, names="seeds")
        return gf.DataLoader(gf.DistributedItemSampler(items, 2, rank=0, world_size=2, owners=owners), 0, seed=SEED)

    book = PartBook.from_bounds([0, 4, 8])
    without, with_owners = json.loads(json.dumps([loader_of(owners).state_dict() for owners in (None, book)]))
    if old:
        del without["fingerprint"]["1 DistributedItemSampler"]["owners"]
    loader_of(None).load_state_dict(without)
    loader_of(book).load_state_dict(with_owners)
    with pytest.raises(ValueError, match="owners of stage 1 DistributedItemSampler is None in it, but ItemsByOwner of"):
        loader_of(book).load_state_dict(without)
    with pytest.raises(ValueError, match=r"owners of stage 1 DistributedItemSampler is ItemsByOwner .* but None here"):
        loader_of(None).load_state_dict(with_owners)


@limits(part_values=2)
def test_edges_belong_to_the_part_of_their_destination() -> None:
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
    for items, expected in (
        (users, [[{"user": [0], "item": [0, 1, 2]}], [{"user": [1, 2, 3], "item": [3]}]]),
        (edges, [[{"user:likes:item": [[3, 0]]}], [{"user:likes:item": [[0, 3]]}]]),
    ):
        size = len(items) // 2
        pipes = [gf.DistributedItemSampler(items, size, rank=rank, world_size=2, owners=books) for rank in range(2)]
        found = [[{kind: own.tolist() for kind, own in batch.seeds.items()} for batch in pipe] for pipe in pipes]
        assert found == expected
