"""Containers of tensors: their leaves, how they move together, and how they are printed."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import Key
from graphfeed.ops.backend import PACKAGES
from graphfeed.storage import CSCFormatBase
from graphfeed.storage.memory import all_pinned, child_values, shapes_repr, tensor_repr, tensors_in, to_device
from graphfeed.storage.memory.tensor_repr import LONGEST, indent_continuation, shape_text
from graphfeed.storage.memory.tensor_tree import TOGETHER_BYTES, Movable, each_leaf, map_leaves, side_by_side, views_of
from tests.ops.locked_memory import LockedMemory
from tests.tensors import DTYPES

FIRST, SECOND = torch.tensor([0, 1]), torch.tensor([3])


class Pair(NamedTuple):
    left: Any
    right: Any


class Holder:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def test_leaves_change_and_containers_stay_what_they_are() -> None:
    tree = {"a": [1, (2, Pair(3, 4))], "b": OrderedDict(c=5), "d": defaultdict(int, e=6)}
    changed = map_leaves(str, tree)
    assert changed == {"a": ["1", ("2", "Pair(left=3, right=4)")], "b": {"c": "5"}, "d": {"e": "6"}}
    assert isinstance(changed["b"], OrderedDict)
    assert changed["d"]["missing"] == 0
    assert tree["a"] == [1, (2, Pair(3, 4))]


def test_the_leaves_are_those_that_a_function_is_applied_to() -> None:
    tree = {"a": [1, (2, Pair(3, 4))], "b": OrderedDict(c=5), "d": Mine(FIRST), "e": {6}}
    applied: list[Any] = []
    map_leaves(applied.append, tree)
    assert sorted(map(str, each_leaf(tree))) == sorted(map(str, applied))


def test_tensors_are_found_in_order_and_as_often_as_they_occur() -> None:
    tree = {"a": [FIRST, (SECOND, "text")], "b": CSCFormatBase(FIRST, SECOND[:1]), "c": Pair(FIRST, None)}
    assert [tensor.tolist() for tensor in tensors_in(tree)] == [[0, 1], [3], [0, 1], [3], [0, 1]]


def test_other_objects_and_classes_are_not_looked_into_for_tensors() -> None:
    assert list(tensors_in([Holder(inside=FIRST), CSCFormatBase, "text", None])) == []
    assert list(child_values(Holder(inside=FIRST))) == [FIRST]
    assert list(child_values(CSCFormatBase)) == list(child_values(3)) == []


def test_moving_goes_through_containers_and_leaves_the_rest() -> None:
    moved = to_device({"a": [FIRST, (SECOND, "text")], "b": None}, "meta")
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert (moved["a"][1][1], moved["b"]) == ("text", None)


def test_nothing_is_not_pinned() -> None:
    assert not all_pinned({"a": [None, "text"]})
    assert not all_pinned(FIRST)


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


def test_what_lies_in_one_block_is_copied_once(memory: LockedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "meta", "cuda")
    pinned = to_device([FIRST, SECOND, torch.tensor(True)], "pinned")
    block, starts = side_by_side(pinned)
    assert storages([block]) == storages(pinned[:1])
    assert [part.tolist() for part in views_of(block, starts, pinned)] == [[0, 1], [3], True]
    copied: list[Any] = []
    own: Any = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **how: Any) -> Any:
        copied.append(tensor)
        return own(tensor, *args, **how)

    monkeypatch.setattr(torch.Tensor, "to", to)
    there = to_device({"a": pinned}, "meta")["a"]
    assert [(part.device.type, part.shape, part.dtype) for part in there] == [
        ("meta", part.shape, part.dtype) for part in pinned
    ]
    assert storages(copied) == [block.data_ptr()]


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=8))
def test_a_block_holds_any_tensors_and_is_found_again(kinds: list[tuple[torch.dtype, list[int]]]) -> None:
    tensors = [torch.arange(torch.Size(shape).numel()).to(dtype).reshape(shape) for dtype, shape in kinds]
    block, starts = side_by_side(tensors)
    views = list(views_of(block, starts, tensors))
    assert all(torch.equal(view, own) and view.dtype == own.dtype for view, own in zip(views, tensors, strict=True))
    again, _ = side_by_side(views)
    assert again.data_ptr() == block.data_ptr()


def test_a_part_of_something_large_is_copied_alone() -> None:
    whole = torch.arange(1000)
    block, _ = side_by_side([whole[3:5], whole[7:9]])
    assert block.nbytes < 512


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


def test_fields_stand_below_each_other_with_their_lines_aligned() -> None:
    assert indent_continuation("a\nb\nc", 2) == "a\n  b\n  c"
    assert tensor_repr("Edge", {"source": 1, "to": torch.tensor([2])}) == "Edge(source=1,\n     to=tensor([2]),\n)"
    inner = tensor_repr("B", {"c": 1, "d": 2})
    assert tensor_repr("A", {"b": inner}) == "A(b=B(c=1,\n      d=2,\n    ),\n)"
    assert tensor_repr("A", {"b": [1, "x\ny"], "empty": []}) == "A(b=[1,\n     x\n     y],\n  empty=[],\n)"
    assert tensor_repr("A", {}) == "A()"


def test_values_in_few_words() -> None:
    values: list[tuple[object, str]] = [
        (torch.zeros(2, 3), "float32[2, 3]"),
        (torch.tensor(1), "int64[]"),
        (torch.empty(4, device="meta"), "float32[4] on meta"),
        (np.zeros(3, np.uint8), "uint8[3]"),
        ({("user", "feat"): torch.zeros(1)}, "{('user', 'feat'): float32[1]}"),
        ([1, (None, "a")], "[1, (None, 'a')]"),
        (Key(1, 2, 3), "Key(seed=1, epoch=2, index=3)"),
        ("a" * LONGEST, "str(...)"),
        ([0] * 10, "[0, 0, 0, 0, 0, 0, 0, 0, ... 2 more]"),
    ]
    assert [shape_text(value) for value, _ in values] == [text for _, text in values]


def test_the_text_of_somebody_elses_object_is_not_asked_for() -> None:
    class Slow:
        def __repr__(self) -> str:
            raise AssertionError("this may take long")

    assert shape_text([Slow()]) == "[Slow(...)]"


def test_what_is_too_long_for_a_line_has_a_line_per_element() -> None:
    text = shape_text({"a" * 60: torch.zeros(1), "b" * 60: [torch.zeros(1)]})
    assert text == f"{{\n  '{'a' * 60}': float32[1],\n  '{'b' * 60}': [float32[1]],\n}}"


def test_a_record_of_shapes_has_a_line_per_field() -> None:
    assert shapes_repr("A", {"b": torch.zeros(1), "c": 1}) == "A(\n  b=float32[1],\n  c=1,\n)"
    assert shapes_repr("A", {}) == "A()"
