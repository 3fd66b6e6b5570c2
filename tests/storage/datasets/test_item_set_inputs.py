"""An item set is made of what people have, and checked when it is made; a mask stands for the nodes that it selects."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from tests.array_likes import AS
from tests.digests import assert_same

IDS = torch.tensor([5, 3, 9, 4])
MASK = torch.tensor([False, True, False, True, True])

each_kind = pytest.mark.parametrize("convert", AS.values(), ids=AS.keys())


def batches(items: Any, size: int = 3) -> list[Any]:
    return list(gf.DataLoader(gf.ItemSampler(items, size, shuffle=True), num_workers=2, seed=0))


@each_kind
@pytest.mark.parametrize("shape", [(4,), (2, 2), (4, 1)], ids=str)
def test_a_member_may_be_an_array_like(convert: Callable[[torch.Tensor], Any], shape: tuple[int, ...]) -> None:
    given = convert(IDS.reshape(shape))
    expected = gf.ItemSet(IDS.reshape(shape), names="seeds")
    for items in (gf.ItemSet(given, names="seeds"), gf.ItemSet((given,), names=("seeds",))):
        assert_same(items[:], expected[:])
        assert_same(items[torch.tensor([1, 0])], expected[torch.tensor([1, 0])])
        assert_same(items[1], expected[1])
        assert_same([batch.seeds for batch in batches(items)], [batch.seeds for batch in batches(expected)])


@each_kind
def test_labels_may_be_array_likes(convert: Callable[[torch.Tensor], Any]) -> None:
    scores = torch.tensor([0.5, 1.5, 2.5, 3.5])
    (batch,) = batches(gf.ItemSet((convert(IDS), convert(scores)), names=("seeds", "labels")), 4)
    assert_same(batch.labels, scores[(batch.seeds[:, None] == IDS).long().argmax(1)])


@pytest.mark.parametrize("items", [range(10), range(2, 9, 3), range(5, 0, -2), range(0)], ids=str)
def test_a_range_takes_no_memory_and_is_its_numbers(items: range) -> None:
    own, same = (
        gf.ItemSet(items, names="seeds"),
        gf.ItemSet(torch.tensor(list(items), dtype=torch.int64), names="seeds"),
    )
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


@pytest.mark.parametrize("objects", [["a", "b", "c"], [[1, 2], [3], []], [None, {"k": 1}, 2.5]], ids=str)
@pytest.mark.parametrize("convert", [list, tuple])
def test_a_list_of_any_objects_is_kept(objects: list[Any], convert: Any) -> None:
    items = gf.ItemSet((torch.arange(3), convert(objects)), names=("seeds", "labels"))
    assert items[1] == (torch.tensor(1), objects[1])
    assert items[torch.tensor([2, 0])][1] == [objects[2], objects[0]]
    assert items[1:][1] == objects[1:]
    for batch in batches(items, 2):
        assert batch.labels == [objects[node] for node in batch.seeds.tolist()]


@pytest.mark.parametrize(
    ("give", "error", "message"),
    [
        (lambda: gf.ItemSet({"seeds": IDS}), TypeError, "items must be a tensor, .* but is {'seeds': tensor"),
        (lambda: gf.ItemSet(torch.tensor(5.5)), TypeError, r"items must be a tensor, .* but is tensor\(5.5"),
        (lambda: gf.ItemSet(True), TypeError, "items must be a tensor, .* but is True"),
        (lambda: gf.ItemSet(iter([1])), TypeError, "items must be a tensor, .* but is a list_iterator"),
        (lambda: gf.ItemSet(np.array(["a"])), TypeError, "items must hold numbers, but holds <U1"),
        (lambda: gf.ItemSet(IDS, names=5), TypeError, "names must be a text, or a tuple .*, but is 5"),  # type: ignore[arg-type]
        (lambda: gf.ItemSet((IDS, IDS), names=(5, IDS)), TypeError, "names must be a text, or a tuple .*"),  # type: ignore[arg-type]
        (lambda: gf.ItemSet((IDS, IDS), names=("seeds", "seeds")), ValueError, "names must differ, but are"),
        (
            lambda: gf.ItemSet((MASK, MASK), names=("seeds", "labels")),
            ValueError,
            r"members have \[3, 5\] rows; make them equally long; a mask counts the nodes that it selects",
        ),
    ],
)
def test_what_is_no_item_set_is_named_when_it_is_made(give: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        give()


def test_large_items_are_named_by_their_shape() -> None:
    start = time.thread_time()
    with pytest.raises(TypeError, match=r"but is \{'user': a Tensor of shape \(1000000,\)") as caught:
        gf.ItemSet({"user": torch.zeros(1_000_000)})
    assert len(str(caught.value)) < 400
    assert time.thread_time() - start < 1


@pytest.mark.parametrize("mask", [MASK, MASK.numpy(), MASK.tolist()], ids=["tensor", "array", "list"])
def test_a_mask_stands_for_the_nodes_that_it_selects(mask: Any) -> None:
    for items in (gf.ItemSet(mask, names="seeds"), gf.ItemSet(mask), gf.ItemSet((mask,), names=["seeds"])):
        assert len(items) == 3
        assert_same(items[:], torch.tensor([1, 3, 4]))
    labels = torch.tensor([7, 8, 9])
    (batch,) = batches(gf.ItemSet((mask, labels), names=("seeds", "labels")))
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
    with pytest.raises(ValueError, match="must have three parts"):
        gf.HeteroItemSet({("user", "item"): pairs})  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", [False, True])
def test_a_member_without_a_name_is_left_out_of_the_mini_batch(typed: bool) -> None:
    items: Any = gf.ItemSet((IDS, torch.zeros(4), IDS), names=("seeds", None, "labels"))
    assert items.names == ("seeds", None, "labels")
    (batch,) = batches(gf.HeteroItemSet({"user": items}) if typed else items, 4)
    filled = {name for name, value in vars(batch).items() if value is not None}
    assert filled == {"seeds", "labels", "key"}
    assert_same(batch.seeds, batch.labels)


def test_names_that_are_all_none_are_no_names() -> None:
    assert gf.ItemSet((IDS, IDS), names=(None, None)).names is None
