from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
import torch

from graphfeed.storage import CSCFormatBase
from graphfeed.storage.memory.tensor_tree import all_pinned, map_leaves, move, parts_of, tensors_in

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


def test_tensors_are_found_in_order_and_as_often_as_they_occur() -> None:
    tree = {"a": [FIRST, (SECOND, "text")], "b": CSCFormatBase(FIRST, SECOND[:1]), "c": Pair(FIRST, None)}
    assert [tensor.tolist() for tensor in tensors_in(tree)] == [[0, 1], [3], [0, 1], [3], [0, 1]]


def test_other_objects_and_classes_are_not_looked_into_for_tensors() -> None:
    assert list(tensors_in([Holder(inside=FIRST), CSCFormatBase, "text", None])) == []
    assert list(parts_of(Holder(inside=FIRST))) == [FIRST]
    assert list(parts_of(CSCFormatBase)) == list(parts_of(3)) == []


def test_moving_goes_through_containers_and_leaves_the_rest() -> None:
    moved = move({"a": [FIRST, (SECOND, "text")], "b": None}, "meta")
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert (moved["a"][1][1], moved["b"]) == ("text", None)


def test_nothing_is_not_pinned() -> None:
    assert not all_pinned({"a": [None, "text"]})
    assert not all_pinned(FIRST)


def test_what_cannot_be_pinned_stays_where_it_is() -> None:
    sparse, far = torch.eye(2).to_sparse(), torch.empty(2, device="meta")
    assert all(
        mine is theirs
        for mine, theirs in zip(move([sparse, far, "text"], "pinned"), [sparse, far, "text"], strict=True)
    )


@pytest.mark.gpu
def test_moving_to_pinned_memory() -> None:
    assert all_pinned(move({"a": [FIRST, (SECOND,)]}, "pinned"))
