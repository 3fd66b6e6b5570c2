"""Ranks share what one sampler makes: each mini-batch once, in the same steps, whatever the number of ranks."""

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

import graphfeed as gf
from tests import pipelines
from tests.digests import digest, digests

SEED = 5


def sampler(total: int, batch_size: int, rank: int | None, world_size: int | None, **more: Any) -> Any:
    items = gf.ItemSet(torch.arange(total), names="seeds")
    return gf.DistributedItemSampler(items, batch_size, rank=rank, world_size=world_size, **more)


def seeds_of(pipe: Any) -> list[list[int]]:
    return [batch.seeds.tolist() for batch in pipe]


def count_split(total: int, num_workers: int, worker_id: int, batch_size: int) -> int:
    """Deal whole batches out evenly, the first get one more; the rest goes to who comes after the last full one."""
    full, rest = divmod(total, batch_size)
    each, more = divmod(full, num_workers)
    return each * batch_size + (batch_size if worker_id < more else 0) + (rest if worker_id == more else 0)


def calculate_range(total: int, ranks: int, rank: int, batch_size: int, drop_last: bool, drop_uneven: bool) -> int:
    """Return how many items a rank gives out, as GraphBolt counts them."""
    own, last = (count_split(total, ranks, place, batch_size) for place in (rank, ranks - 1))
    if drop_uneven and drop_last:
        return total // (batch_size * ranks) * batch_size
    if drop_uneven:
        return min(-(-last // batch_size) * batch_size, own)
    return own // batch_size * batch_size if drop_last else own


COUNTS = [
    (30, False, False, [8, 8, 8, 6]),
    (30, True, False, [8, 8, 8, 4]),
    (30, True, True, [4, 4, 4, 4]),
    (26, False, False, [8, 8, 6, 4]),
    (26, False, True, [4, 4, 4, 4]),
    (26, True, False, [8, 8, 4, 4]),
    (9, False, False, [4, 4, 1, 0]),
    (9, False, True, [0, 0, 0, 0]),
    (3, False, False, [3, 0, 0, 0]),
]
"""Items, drop_last, drop_uneven_inputs, and how many items each of four ranks gives out in mini-batches of four."""


def test_four_ranks_have_these_counts() -> None:
    for total, drop_last, drop_uneven, counts in COUNTS:
        assert [calculate_range(total, 4, rank, 4, drop_last, drop_uneven) for rank in range(4)] == counts
        options = {"drop_last": drop_last, "drop_uneven_inputs": drop_uneven}
        ranks = [seeds_of(sampler(total, 4, rank, 4, **options)) for rank in range(4)]
        assert [sum(map(len, batches)) for batches in ranks] == counts, (total, options)


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


def test_ranks_see_other_items_each_epoch() -> None:
    pipe = sampler(100, 10, 0, 2, shuffle=True)
    epochs = [{seed for batch in seeds_of(pipe.with_seed(SEED, epoch)) for seed in batch} for epoch in range(2)]
    assert epochs[0] != epochs[1]


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


def test_ranks_that_each_take_all_items_are_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    items = gf.ItemSet(10, names="seeds")
    with pytest.warns(UserWarning, match="each of 2 ranks draws a seed of its own, .* with a DistributedItemSampler"):
        gf.DataLoader(gf.ItemSampler(items, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gf.DataLoader(gf.ItemSampler(items, 4), seed=0)
        gf.DataLoader(gf.ItemSampler(items, 4, seed=0))


def test_typed_items() -> None:
    items = gf.HeteroItemSet({kind: gf.ItemSet(3, names="seeds") for kind in ("a", "b")})
    pipe = gf.DistributedItemSampler(items, 2, rank=1, world_size=3)
    assert [batch.seeds for batch in pipe] == [{"a": torch.tensor([2]), "b": torch.tensor([0])}]


def test_ranks_that_cannot_agree_need_a_seed() -> None:
    with gf.DataLoader(sampler(10, 4, 0, 2, seed=3)) as loader:
        assert loader.seed == 3


def work_as_rank(rank: int, world_size: int, store: str) -> dict[str, Any]:
    """Do what a rank of a training does, in a process of its own."""
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
