"""Containers of tensors: their leaves, how they move together, and how they are printed."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from graphfeed.storage import CSCFormatBase
from graphfeed.storage.memory import all_pinned, count_bytes, tensors_in, to_device
from graphfeed.storage.memory.tensor_tree import TOGETHER_BYTES, Movable
from tests.stand_ins.locked_memory import LockedMemory

FIRST, SECOND = torch.tensor([0, 1]), torch.tensor([3])


class Pair(NamedTuple):
    left: Any
    right: Any


def test_tensors_are_found_in_order_and_as_often_as_they_occur() -> None:
    tree = {"a": [FIRST, (SECOND, "text")], "b": CSCFormatBase(FIRST, SECOND[:1]), "c": Pair(FIRST, None)}
    assert [tensor.tolist() for tensor in tensors_in(tree)] == [[0, 1], [3], [0, 1], [3], [0, 1]]


@pytest.mark.parametrize("look", [count_bytes, all_pinned, tensors_in])
def test_tensors_that_were_looked_at_are_freed_without_the_garbage_collector(look: Callable[[Any], object]) -> None:
    gc.disable()
    try:
        tensor = torch.zeros(3)
        freed = weakref.ref(tensor)
        look({"a": [tensor]})
        del tensor
        assert freed() is None
    finally:
        gc.enable()


def test_moving_goes_through_containers_and_leaves_the_rest() -> None:
    moved = to_device({"a": [FIRST, (SECOND, "text")], "b": None}, "meta")
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert (moved["a"][1][1], moved["b"]) == ("text", None)
    assert list(tensors_in([{"a": FIRST}, Mine(FIRST), CSCFormatBase, "text", None])) == [FIRST]
    assert not all_pinned({"a": [None, "text"]})


def test_what_cannot_be_pinned_stays_where_it_is() -> None:
    sparse, far = torch.eye(2).to_sparse(), torch.empty(2, device="meta")
    assert all(
        mine is theirs
        for mine, theirs in zip(to_device([sparse, far, "text"], "pinned"), [sparse, far, "text"], strict=True)
    )


class Mine(Movable):
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def storages(tensors: Any) -> list[int]:
    return [tensor.untyped_storage().data_ptr() for tensor in tensors]


@pytest.fixture
def memory() -> Iterator[LockedMemory]:
    with LockedMemory().installed() as memory:
        yield memory


def test_an_object_moves_with_what_it_holds_and_the_given_one_stays() -> None:
    mine = Mine(FIRST)
    (moved,) = to_device([mine], "meta")
    assert (type(moved), moved.tensor.device.type) == (Mine, "meta")
    assert (mine.tensor is FIRST, mine.is_pinned()) == (True, False)


def test_small_tensors_are_pinned_in_one_block(memory: LockedMemory) -> None:
    large = torch.ones(TOGETHER_BYTES // 4)
    tree = {
        "a": [FIRST, (SECOND, SECOND)],
        "b": Mine(torch.zeros(0, 2)),
        "c": CSCFormatBase(FIRST, SECOND[:1]),
        "d": large,
    }
    moved = to_device(tree, "pinned")
    *small, pinned = tensors_in([*moved["a"], moved["b"].tensor, moved["c"], moved["d"]])
    assert [tensor.tolist() for tensor in small] == [[0, 1], [3], [3], [], [0, 1], [3]]
    assert len({*storages(small)}) == 1
    assert len(memory.blocks) == 2
    assert torch.equal(pinned, large)
    assert all_pinned(moved)
    assert not all_pinned(tree)


@pytest.mark.parametrize("pinned", [False, True])
def test_large_parts_of_a_storage_are_pinned_together_wherever_they_begin(memory: LockedMemory, pinned: bool) -> None:
    whole = torch.arange(2 * TOGETHER_BYTES, dtype=torch.int32)
    whole = whole.pin_memory() if pinned else whole
    for first in (0, 5, 16, 100, 12345):
        parts = [whole[first : first + TOGETHER_BYTES], whole[first + TOGETHER_BYTES + 3 : first + TOGETHER_BYTES + 9]]
        moved = to_device([*parts, parts[0].view(torch.int16)[6:]], "pinned")
        assert len(set(storages(moved))) == 1
        for own, other in zip(moved, [*parts, parts[0].view(torch.int16)[6:]], strict=True):
            assert own.is_pinned()
            assert own.dtype == other.dtype
            assert own.equal(other)


def test_changing_one_in_place_changes_nothing_that_autograd_has_saved_of_another(memory: LockedMemory) -> None:
    weight = torch.ones(2, requires_grad=True)
    features, labels = to_device([torch.ones(2), torch.ones(2)], "pinned")
    loss = (weight * features).sum()
    labels -= 1
    loss.backward()
    assert weight.grad is not None


def test_what_is_more_than_its_bytes_goes_by_itself(memory: LockedMemory) -> None:
    for own in (torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)), torch.ones(2, 3).t()):
        moved = to_device([FIRST, SECOND, own], "pinned")
        assert len({*storages(moved)}) == 2
        assert memory.holds_all(moved[2])
        assert torch.equal(moved[2], own)


@pytest.mark.gpu
def test_moving_to_pinned_memory() -> None:
    assert all_pinned(to_device({"a": [FIRST, (SECOND,)]}, "pinned"))
