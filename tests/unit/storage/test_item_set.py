"""Item sets like GraphBolt's, but errors are a ValueError or IndexError that names the wrong value, never an assertion.

A range is checked, a slice of a typed set has no types without rows, and an empty slice is empty. Sets can be created
from any usual data; a mask stands for the nodes that it selects.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from graphfeed.storage import HeteroItemSet, ItemSet
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

IDS = torch.arange(10, 15)
LABELS = torch.tensor([0.5, 1.5, 2.5, 3.5, 4.5])
PAIR = ItemSet((IDS, LABELS), names=("seeds", "labels"))


def users_and_items() -> HeteroItemSet:
    return HeteroItemSet({"user": ItemSet(IDS[:2], names="seeds"), "item": ItemSet(IDS[2:], names="seeds")})


def test_rows_of_one_member_are_bare() -> None:
    for given in (IDS, (IDS,), [10, 11, 12, 13, 14]):
        items = ItemSet(given, names="seeds")
        assert (len(items), items.num_items, items.names) == (5, 1, ("seeds",))
        assert int(items[1]) == 11
        assert [int(row) for row in items[1:3]] == [11, 12]


def test_rows_of_several_members_are_tuples() -> None:
    assert (len(PAIR), PAIR.num_items, PAIR.names) == (5, 2, ("seeds", "labels"))
    assert_same(PAIR[1], (IDS[1], LABELS[1]))
    assert_same(PAIR[1:4], (IDS[1:4], LABELS[1:4]))
    for index in (torch.tensor([4, 0, 0]), [4, 0, 0], (4, 0, 0), np.array([4, 0, 0])):
        assert_same(PAIR[index], (IDS[[4, 0, 0]], LABELS[[4, 0, 0]]))
    assert_same(PAIR[[]], (IDS[:0], LABELS[:0]))
    assert_same(ItemSet(5)[[]], torch.arange(0))
    assert users_and_items()[[]] == {}
    assert gf.ItemSet((IDS, IDS), names=(None, None)).names is None


def test_every_kind_of_integer_is_one_position_and_negative_ones_count_from_the_end() -> None:
    positions: list[Any] = [3, -2, np.int32(3), torch.tensor(3), torch.tensor(3, dtype=torch.int32)]
    for one in positions:
        assert_same(PAIR[one], (IDS[3], LABELS[3]))
        assert_same(ItemSet(5)[one], torch.tensor(3))
        assert_same(users_and_items()[one], {"item": torch.tensor(13)})


def test_a_number_is_a_range_of_its_dtype() -> None:
    for dtype in (torch.int32, torch.int64):
        items = ItemSet(torch.tensor(5, dtype=dtype), names="seeds")
        assert len(items) == 5
        assert_same(items[3], torch.tensor(3, dtype=dtype))
        assert_same(items[1:5:2], torch.tensor([1, 3], dtype=dtype))
        assert_same(items[torch.tensor([4, 1])], torch.tensor([4, 1], dtype=dtype))
        assert_same(list(items), list(torch.arange(5, dtype=dtype)))
    assert_same(ItemSet(3)[:], torch.arange(3))


def test_iterating_gives_each_item_once() -> None:
    assert_same(list(PAIR), [(IDS[place], LABELS[place]) for place in range(5)])
    assert_same(list(users_and_items()), [{"user": IDS[0]}, {"user": IDS[1]}] + [{"item": row} for row in IDS[2:]])


def test_empty_sets_have_no_items() -> None:
    for items in (ItemSet(0), ItemSet(IDS[:0]), HeteroItemSet({"user": ItemSet(0)})):
        assert (len(items), list(items)) == (0, [])


def test_a_slice_of_a_typed_set_has_the_types_that_it_touches() -> None:
    items = users_and_items()
    assert_same(items[1:4], {"user": IDS[1:2], "item": IDS[2:4]})
    assert_same(items[::2], {"user": IDS[:1], "item": IDS[[2, 4]]})
    assert_same(items[2:4], {"item": IDS[2:4]})
    assert items[3:3] == {}


def test_indexes_are_grouped_by_type_and_keep_their_order() -> None:
    for index in (torch.tensor([4, 0, 2, 0]), [4, 0, 2, 0]):
        assert_same(users_and_items()[index], {"user": IDS[[0, 0]], "item": IDS[[4, 2]]})


def test_a_type_without_items_is_passed_over() -> None:
    items = HeteroItemSet({"a": ItemSet(0), "b": ItemSet(2), "c": ItemSet(0), "d": ItemSet(1)})
    assert_same([items[0], items[2]], [{"b": torch.tensor(0)}, {"d": torch.tensor(0)}])
    assert_same(items[:], {"b": torch.arange(2), "d": torch.arange(1)})


def test_typed_sets_of_several_members_give_tuples() -> None:
    items = HeteroItemSet({"user": PAIR, "item": PAIR})
    assert_same(items[torch.tensor([6, 1])], {"user": (IDS[[1]], LABELS[[1]]), "item": (IDS[[1]], LABELS[[1]])})


def test_what_is_no_index_is_refused() -> None:
    any_type: Any = users_and_items()
    sets: list[Any] = [PAIR, ItemSet(5), any_type]
    wrong: list[tuple[Any, type[Exception], str]] = [
        (5, IndexError, "index out of range: 5 of 5 items"),
        (-6, IndexError, "index out of range: -6 of 5 items"),
        (torch.tensor([0, 5]), IndexError, "out of range.*5.* of 5 items"),
        (torch.tensor([-1]), IndexError, "out of range.*-1.* of 5 items"),
        ("1", TypeError, "indices must be int, slice, or a sequence or tensor of int, .*str"),
        (1.0, TypeError, "indices must be .*float"),
        (None, TypeError, "indices must be .*NoneType"),
        (torch.tensor([True, False, True, False, False]), TypeError, "tensor of int, not torch.bool"),
        (torch.tensor([0.0]), TypeError, "tensor of int, not torch.float32"),
        (torch.tensor([0, 1], dtype=torch.uint8), TypeError, "tensor of int, not torch.uint8"),
        ([True, False], TypeError, "tensor of int, not torch.bool"),
        ([1.5], TypeError, "tensor of int, not torch.float32"),
    ]
    table: list[Refusal] = [
        (lambda: PAIR[5], IndexError, "^ItemSet index out of range"),
        (lambda: users_and_items()[5], IndexError, "^HeteroItemSet index out of range"),
        (lambda: any_type["user"], TypeError, "not str; the items of a type are by_type\\['user'\\]"),
    ]
    for items, (index, kind, words) in product(sets, wrong):
        table.append((lambda items=items, index=index: items[index], kind, words))  # type: ignore[misc]
    check_refused(table)


def test_what_cannot_be_a_set_is_refused_when_it_is_made() -> None:
    pairs: Any = ItemSet(torch.tensor([[0, 1]]), names="seeds")
    make: Any = ItemSet
    typed: Any = HeteroItemSet
    unlike = {"a": ItemSet(1, names="seeds"), "b": ItemSet(1)}
    equal_length = r"members have \[3, 5\] rows; make them equally long; a mask counts the nodes that it selects"
    names = "names must be a string, or a tuple"
    check_refused([
        (lambda: make(()), ValueError, r"items is an empty tuple; give a tensor"),
        (lambda: make((IDS, LABELS[:4])), ValueError, r"Size mismatch between items: the members have \[5, 4\] rows"),
        (lambda: make(-1), ValueError, r"items must be 0 or more, but is -1"),
        (lambda: make(IDS, names=("seeds", "labels")), ValueError, r"items \(1\) and names \(2\) don't match"),
        (lambda: make((IDS, LABELS), names="seeds"), ValueError, r"Number of items \(2\) and names \(1\) don't match"),
        (lambda: make({"seeds": NODES}), TypeError, "items must be a tensor, .* but is {'seeds': tensor"),
        (lambda: make(torch.tensor(5.5)), TypeError, r"items must be a tensor, .* but is tensor\(5.5"),
        (lambda: make(True), TypeError, "items must be a tensor, .* but is True"),
        (lambda: make(iter([1])), TypeError, "items must be a tensor, .* but is a list_iterator"),
        (lambda: make(np.array(["a"])), TypeError, "items must hold numbers, but holds <U1"),
        (lambda: make(IDS, names=5), TypeError, f"{names} .*, but is 5"),
        (lambda: make((IDS, IDS), names=(5, IDS)), TypeError, names),
        (lambda: make((IDS, IDS), names=("seeds", "seeds")), ValueError, "names must differ, but are"),
        (lambda: make((MASK, MASK), names=("seeds", "labels")), ValueError, equal_length),
        (lambda: typed({}), ValueError, r"itemsets is empty; give an ItemSet for at least one type"),
        (lambda: typed(unlike), ValueError, r"the same names, but they have {'a': \('seeds',\), 'b': None}"),
        (lambda: typed({("user", "item"): pairs}), ValueError, "must have three parts"),
    ])  # fmt: skip


NODES = torch.tensor([5, 3, 9, 4])
MASK = torch.tensor([False, True, False, True, True])


def batches(items: Any, size: int = 3) -> list[Any]:
    return list(gf.DataLoader(gf.ItemSampler(items, size, shuffle=True), num_workers=2, seed=0))


def test_a_range_takes_no_memory_and_is_its_numbers() -> None:
    for items in (range(10), range(2, 9, 3), range(5, 0, -2), range(0)):
        own = gf.ItemSet(items, names="seeds")
        same = gf.ItemSet(torch.tensor(list(items), dtype=torch.int64), names="seeds")
        assert len(own) == len(items)
        assert_same(own[:], same[:])
        assert_same(list(own), list(same))
        assert_same(own[::2], same[::2])
        places = torch.arange(len(items) - 1, -1, -1, dtype=torch.int32)
        assert_same(own[places], same[places])
    assert len(gf.ItemSet(range(10**12))) == 10**12


def test_an_array_is_not_copied_and_a_mapped_one_is_not_read(tmp_path: Path) -> None:
    array = np.arange(6).reshape(3, 2)
    items = gf.ItemSet(array, names="seeds")
    array[1] = 7
    assert items[1].tolist() == [7, 7]
    np.save(tmp_path / "ids.npy", array)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert gf.ItemSet(mapped, names="seeds")[:].data_ptr() == mapped.ctypes.data


def test_an_object_that_can_be_indexed_is_kept() -> None:
    class Squares:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
            return index**2

    (batch,) = batches(gf.ItemSet(Squares(), names="seeds"), 5)
    assert sorted(batch.seeds.tolist()) == [0, 1, 4, 9, 16]


def test_a_list_of_any_objects_is_kept() -> None:
    lists: list[list[Any]] = [["a", "b", "c"], [[1, 2], [3], []], [None, {"k": 1}, 2.5]]
    for objects, convert in product(lists, (list, tuple)):
        items = gf.ItemSet((torch.arange(3), convert(objects)), names=("seeds", "labels"))
        assert items[1] == (torch.tensor(1), objects[1])
        assert items[torch.tensor([2, 0])][1] == [objects[2], objects[0]]
        assert items[1:][1] == objects[1:]
        for batch in batches(items, 2):
            assert batch.labels == [objects[node] for node in batch.seeds.tolist()]


def test_a_mask_stands_for_the_nodes_that_it_selects() -> None:
    masks: list[Any] = [MASK, MASK.numpy(), MASK.tolist()]
    for mask in masks:
        for items in (gf.ItemSet(mask, names="seeds"), gf.ItemSet(mask), gf.ItemSet((mask,), names=["seeds"])):
            assert len(items) == 3
            assert_same(items[:], torch.tensor([1, 3, 4]))
        (batch,) = batches(gf.ItemSet((mask, torch.tensor([7, 8, 9])), names=("seeds", "labels")))
        assert dict(zip(batch.seeds.tolist(), batch.labels.tolist(), strict=True)) == {1: 7, 3: 8, 4: 9}
        typed = gf.HeteroItemSet({"user": gf.ItemSet(mask, names="seeds")})
        assert_same(typed[:], {"user": torch.tensor([1, 3, 4])})


def test_booleans_with_another_name_stay_values() -> None:
    assert_same(gf.ItemSet((torch.arange(5), MASK), names=("seeds", "labels"))[:][1], MASK)
    assert_same(gf.ItemSet(MASK, names="labels")[:], MASK)
    assert_same(gf.ItemSet((MASK, MASK))[:], (MASK, MASK))


def test_edge_types_may_be_tuples() -> None:
    pairs = gf.ItemSet(torch.tensor([[0, 1]]), names="seeds")
    items = gf.HeteroItemSet({("user", "likes", "item"): pairs})
    assert_same(items[:], {"user:likes:item": torch.tensor([[0, 1]])})


def test_a_member_without_a_name_is_left_out_of_the_mini_batch() -> None:
    items: Any = gf.ItemSet((NODES, torch.zeros(4), NODES), names=("seeds", None, "labels"))
    assert items.names == ("seeds", None, "labels")
    for given in (items, gf.HeteroItemSet({"user": items})):
        (batch,) = batches(given, 4)
        filled = {name for name, value in vars(batch).items() if value is not None}
        assert filled == {"seeds", "labels", "key"}
        assert_same(batch.seeds, batch.labels)
