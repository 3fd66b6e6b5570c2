"""Pairs of sources with destinations from their lists, and random ones."""

from itertools import chain
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.datasets import ItemLists
from tests.kinds.chance import check_counts
from tests.kinds.events import check_same_everywhere
from tests.kinds.refusals import check_refused

LISTS = [[3, 1], [0], [5, 2, 4], [1, 1, 2]]
SIZE = 8


def listed(rows: int = 40, **options: Any) -> Any:
    found = [LISTS[row % 4] for row in range(rows)]
    offsets = torch.tensor([0, *map(len, found)]).cumsum(0)
    lists = ItemLists(torch.tensor([*chain(*found)]), offsets)
    items = gf.ItemSet((torch.arange(rows), lists, torch.arange(rows)), names=("seeds", "destinations", "timestamp"))
    typed = gf.HeteroItemSet({"a": items})
    return gf.ItemSampler(typed, batch_size=7, shuffle=True).sample_listed_pair("a:to:b", SIZE, **options)


@pytest.mark.parametrize("strict", [False, True])
def test_each_source_gets_one_of_its_list_and_negatives(strict: bool) -> None:
    rows, negatives = [], torch.zeros(4, SIZE, dtype=torch.int64)
    for batch in listed(4000, ratio=2, strict=strict):
        pairs, times = batch.seeds["a:to:b"], batch.timestamp["a:to:b"]
        count = len(times)
        assert pairs[:count, 0].equal(times)
        assert pairs[:, 0].equal(times[batch.indexes["a:to:b"]])
        assert batch.labels["a:to:b"].tolist() == [1.0] * count + [0.0] * 2 * count
        assert all(end in LISTS[source % 4] for source, end in pairs[:count].tolist())
        assert batch.destinations is None
        rows += pairs[:count, 0].tolist()
        negatives.index_put_((pairs[count:, 0] % 4, pairs[count:, 1]), torch.tensor(1), accumulate=True)
    assert sorted(rows) == list(range(4000))
    for own, known in zip(negatives, LISTS, strict=True):
        check_counts(own, torch.tensor([float(not strict or end not in known) for end in range(SIZE)]))


def test_every_destination_of_a_list_is_drawn_equally_often() -> None:
    counts = torch.zeros(SIZE)
    for batch in listed(4000):
        pairs = batch.seeds["a:to:b"][: len(batch.timestamp["a:to:b"])]
        counts += torch.bincount(pairs[pairs[:, 0] % 4 == 2, 1], minlength=SIZE)
    check_counts(counts, torch.tensor([float(end in LISTS[2]) for end in range(SIZE)]))


def test_pairs_are_the_same_everywhere_and_differ_between_epochs() -> None:
    pipe = listed()
    check_same_everywhere(pipe)
    one, other = ([batch.seeds["a:to:b"].tolist() for batch in pipe.with_seed(1, epoch)] for epoch in (0, 1))
    assert one != other


def test_lists_are_read_as_in_a_loop() -> None:
    lists = ItemLists(torch.tensor([5, 6, 7, 8]), torch.tensor([0, 2, 2, 4]))
    assert len(lists) == 3
    assert [lists[row].tolist() for row in range(3)] == [[5, 6], [], [7, 8]]
    assert lists[torch.tensor([1, 2])].tolist() == [[-1, -1], [7, 8]]
    assert lists[1:2].shape == (1, 0)
    assert lists[:].tolist() == [[5, 6], [-1, -1], [7, 8]]


def pairs_of(seeds: Any, lists: Any, edge_type: str | None = None, **options: Any) -> Any:
    items = gf.ItemSet((seeds, lists), names=("seeds", "destinations"))
    return next(iter(gf.ItemSampler(items, batch_size=2).sample_listed_pair(edge_type, 3, **options)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_integers_of_any_width_give_the_same_pairs(dtype: torch.dtype) -> None:
    lists = torch.tensor([[2, 1], [1, 1]]) if dtype is torch.uint8 else torch.tensor([[2, -1], [1, 2]])
    found = [pairs_of(torch.arange(2), own, strict=True).seeds for own in (lists, lists.to(dtype))]
    assert found[0].equal(found[1])


def test_what_can_not_be_paired_is_refused() -> None:
    two = torch.arange(2)
    check_refused([
        (lambda: pairs_of(two, torch.tensor([[1], [-1]])), ValueError, "item 1 of the mini-batch has no destination"),
        (lambda: pairs_of(two, torch.tensor([[1], [3]])), ValueError, "must be in 0 .. 2"),
        (lambda: pairs_of(two, torch.tensor([[0, 1, 2]] * 2), strict=True), ValueError, "item 0 of the .* has all 3"),
        (lambda: pairs_of(two, torch.ones(2, 1)), TypeError, "destinations must be lists of integers, but are torch.f"),
        (lambda: pairs_of(two, two), ValueError, "each seed needs a list of destinations"),
        (lambda: pairs_of(torch.zeros(2, 2).long(), two[:, None]), ValueError, "seeds must be nodes of None"),
        (lambda: pairs_of(two, two[:, None], "a:to:b"), ValueError, "seeds must be nodes of 'a'"),
        (lambda: pairs_of(two, two[:, None], "a:b"), ValueError, "edge_type must be 'source:relation:destination'"),
        (lambda: pairs_of(two, two[:, None], ratio=0), ValueError, "ratio must be 1"),
        (lambda: ItemLists(torch.arange(3), torch.tensor([0.0, 3.0])), ValueError, "lists must have integers"),
        (lambda: ItemLists(torch.ones(3), torch.tensor([0, 3])), ValueError, "lists must have integers"),
        (lambda: ItemLists(torch.arange(3), torch.tensor([0, 2])), ValueError, "offsets must rise from 0 to 3"),
        (lambda: ItemLists(torch.arange(3), torch.tensor([0, 4, 3])), ValueError, "offsets must rise from 0 to 3"),
    ])  # fmt: skip
