"""As GraphBolt's item sets, but what is wrong is named by a ValueError or IndexError and never by an assertion, a
range is checked, a slice of a typed set has no type without rows, and an empty slice is empty."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.storage import HeteroItemSet, ItemSet
from tests.digests import assert_same

IDS = torch.arange(10, 15)
LABELS = torch.tensor([0.5, 1.5, 2.5, 3.5, 4.5])
PAIR = ItemSet((IDS, LABELS), names=("seeds", "labels"))


def users_and_items() -> HeteroItemSet:
    return HeteroItemSet({"user": ItemSet(IDS[:2], names="seeds"), "item": ItemSet(IDS[2:], names="seeds")})


@pytest.mark.parametrize("items", [IDS, (IDS,), [10, 11, 12, 13, 14]], ids=["tensor", "tuple of one", "list"])
def test_rows_of_one_member_are_bare(items: Any) -> None:
    items = ItemSet(items, names="seeds")
    assert (len(items), items.num_items, items.names) == (5, 1, ("seeds",))
    assert int(items[1]) == 11
    assert [int(row) for row in items[1:3]] == [11, 12]


def test_rows_of_several_members_are_tuples() -> None:
    assert (len(PAIR), PAIR.num_items, PAIR.names) == (5, 2, ("seeds", "labels"))
    assert_same(PAIR[1], (IDS[1], LABELS[1]))
    assert_same(PAIR[1:4], (IDS[1:4], LABELS[1:4]))
    for index in (torch.tensor([4, 0, 0]), [4, 0, 0], (4, 0, 0), np.array([4, 0, 0])):
        assert_same(PAIR[index], (IDS[[4, 0, 0]], LABELS[[4, 0, 0]]))


@pytest.mark.parametrize("one", [3, np.int32(3), torch.tensor(3), torch.tensor(3, dtype=torch.int32)], ids=repr)
def test_every_kind_of_integer_is_one_position(one: Any) -> None:
    assert_same(PAIR[one], PAIR[3])
    assert_same(ItemSet(5)[one], torch.tensor(3))
    assert_same(users_and_items()[one], {"item": torch.tensor(13)})


def test_members_may_have_more_dimensions() -> None:
    edges = torch.arange(6).reshape(3, 2)
    assert_same(ItemSet(edges, names="seeds")[torch.tensor([2, 1])], edges[[2, 1]])


def test_negative_numbers_count_from_the_end() -> None:
    assert_same(PAIR[-1], PAIR[4])
    assert_same(ItemSet(5)[-2], torch.tensor(3))
    assert_same(users_and_items()[-1], {"item": torch.tensor(14)})


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_number_is_a_range_of_its_dtype(dtype: torch.dtype) -> None:
    items = ItemSet(torch.tensor(5, dtype=dtype), names="seeds")
    assert len(items) == 5
    assert_same(items[3], torch.tensor(3, dtype=dtype))
    assert_same(items[1:5:2], torch.tensor([1, 3], dtype=dtype))
    assert_same(items[torch.tensor([4, 1])], torch.tensor([4, 1], dtype=dtype))
    assert_same(list(items), list(torch.arange(5, dtype=dtype)))


def test_a_plain_number_is_an_int64_range() -> None:
    assert_same(ItemSet(3)[:], torch.arange(3))


def test_iterating_gives_each_item_once() -> None:
    assert_same(list(PAIR), [(IDS[place], LABELS[place]) for place in range(5)])
    assert_same(list(users_and_items()), [{"user": IDS[0]}, {"user": IDS[1]}] + [{"item": row} for row in IDS[2:]])


def test_empty_sets_have_no_items() -> None:
    for items in (ItemSet(0), ItemSet(IDS[:0]), HeteroItemSet({"user": ItemSet(0)})):
        assert len(items) == 0
        assert list(items) == []


def test_a_typed_set_puts_its_types_one_after_the_other() -> None:
    items = users_and_items()
    assert (len(items), items.num_items, items.names) == (5, 1, ("seeds",))
    assert_same(items[0], {"user": IDS[0]})
    assert_same(items[2], {"item": IDS[2]})


def test_a_slice_of_a_typed_set_has_the_types_that_it_touches() -> None:
    items = users_and_items()
    assert_same(items[1:4], {"user": IDS[1:2], "item": IDS[2:4]})
    assert_same(items[::2], {"user": IDS[:1], "item": IDS[[2, 4]]})
    assert_same(items[2:4], {"item": IDS[2:4]})
    assert items[3:3] == {}


@pytest.mark.parametrize("index", [torch.tensor([4, 0, 2, 0]), [4, 0, 2, 0]], ids=["tensor", "list"])
def test_indexes_are_grouped_by_type_and_keep_their_order(index: Any) -> None:
    assert_same(users_and_items()[index], {"user": IDS[[0, 0]], "item": IDS[[4, 2]]})


def test_a_type_without_items_is_passed_over() -> None:
    items = HeteroItemSet({"a": ItemSet(0), "b": ItemSet(2), "c": ItemSet(0), "d": ItemSet(1)})
    assert_same([items[0], items[2]], [{"b": torch.tensor(0)}, {"d": torch.tensor(0)}])
    assert_same(items[:], {"b": torch.arange(2), "d": torch.arange(1)})


def test_typed_sets_of_several_members_give_tuples() -> None:
    items = HeteroItemSet({"user": PAIR, "item": PAIR})
    assert_same(items[torch.tensor([6, 1])], {"user": (IDS[[1]], LABELS[[1]]), "item": (IDS[[1]], LABELS[[1]])})


@pytest.mark.parametrize("index", [5, -6])
def test_a_number_out_of_range_is_named(index: int) -> None:
    with pytest.raises(IndexError, match=rf"ItemSet index out of range: {index} of 5 items"):
        PAIR[index]
    with pytest.raises(IndexError, match=rf"HeteroItemSet index out of range: {index} of 5 items"):
        users_and_items()[index]


@pytest.mark.parametrize("index", [[0, 5], [-1]])
def test_indexes_out_of_range_are_named(index: list[int]) -> None:
    for items in (users_and_items(), ItemSet(5)):
        with pytest.raises(IndexError, match=rf"out of range.*{index[-1]}.* of 5 items"):
            items[torch.tensor(index)]


@pytest.mark.parametrize("index", ["1", 1.0, None])
def test_other_indexes_are_refused_by_their_type(index: Any) -> None:
    kind = type(index).__name__
    with pytest.raises(
        TypeError, match=f"ItemSet indices must be int, slice, or a sequence or tensor of int, .*{kind}"
    ):
        PAIR[index]
    with pytest.raises(TypeError, match=f"HeteroItemSet indices must be .*{kind}"):
        users_and_items()[index]


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        (torch.tensor([True, False, True, False, False]), "torch.bool"),
        (torch.tensor([0.0]), "torch.float32"),
        (torch.tensor([0, 1], dtype=torch.uint8), "torch.uint8"),
        ([True, False], "torch.bool"),
        ([1.5], "torch.float32"),
    ],
    ids=str,
)
def test_masks_and_fractions_are_no_index(index: Any, kind: str) -> None:
    for items in (PAIR, ItemSet(5), users_and_items()):
        with pytest.raises(TypeError, match=f"must be int, slice, or a sequence or tensor of int, not {kind}"):
            items[index]


def test_no_index_gives_no_rows() -> None:
    assert_same(PAIR[[]], (IDS[:0], LABELS[:0]))
    assert_same(ItemSet(5)[[]], torch.arange(0))
    assert users_and_items()[[]] == {}


def test_what_cannot_be_a_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"items is an empty tuple; give a tensor"):
        ItemSet(())
    with pytest.raises(ValueError, match=r"Size mismatch between items: the members have \[5, 4\] rows"):
        ItemSet((IDS, LABELS[:4]))
    with pytest.raises(ValueError, match=r"items must be 0 or more, but is -1"):
        ItemSet(-1)
    with pytest.raises(ValueError, match=r"Number of items \(2\) and names \(1\) don't match; name each member"):
        ItemSet((IDS, LABELS), names="seeds")
    with pytest.raises(ValueError, match=r"itemsets is empty; give an ItemSet for at least one type"):
        HeteroItemSet({})
    with pytest.raises(ValueError, match=r"must have the same names, but they have {'a': \('seeds',\), 'b': None}"):
        HeteroItemSet({"a": ItemSet(1, names="seeds"), "b": ItemSet(1)})


def test_sets_print_their_items_and_names() -> None:
    assert repr(ItemSet(5, names="seeds")) == "ItemSet(\n    items=5,\n    names=('seeds',),\n)"
    assert repr(ItemSet((1, 1))) == "ItemSet(\n    items=(1, 1),\n    names=None,\n)"
    assert repr(ItemSet(IDS)) == "ItemSet(\n    items=(tensor([10, 11, 12, 13, 14]),),\n    names=None,\n)"
    assert repr(users_and_items()) == (
        "HeteroItemSet(\n"
        "    itemsets={'user': ItemSet(\n"
        "                 items=(tensor([10, 11]),),\n"
        "                 names=('seeds',),\n"
        "             ), 'item': ItemSet(\n"
        "                 items=(tensor([12, 13, 14]),),\n"
        "                 names=('seeds',),\n"
        "             )},\n"
        "    names=('seeds',),\n"
        ")"
    )


@pytest.mark.parametrize("items", [PAIR, ItemSet(7, names="seeds"), users_and_items()], ids=["pair", "range", "typed"])
def test_sets_pickle(items: Any) -> None:
    again = pickle.loads(pickle.dumps(items))
    assert_same(again[:], items[:])
    assert again.names == items.names


def test_large_sets_pickle_small() -> None:
    large = ItemSet((torch.arange(1 << 20), torch.arange(1 << 20)), names=("seeds", "labels"))
    for items in (large, HeteroItemSet({"user": large, "item": large})):
        packed = pickle.dumps(items)
        assert len(packed) < 1 << 13
        assert_same(pickle.loads(packed)[::1000], items[::1000])
