import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference

LISTS = st.lists(st.lists(st.integers(0, 12) | st.integers(0, 2**31 - 1), max_size=20), min_size=1, max_size=4)


def tensors(lists: list[list[int]], dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    return [torch.tensor(ids, dtype=dtype) for ids in lists]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(lists=LISTS)
def test_equal_to_the_reference(dtype: torch.dtype, lists: list[list[int]]) -> None:
    unique, local, offsets = ops.unique_and_compact(tensors(lists, dtype))
    assert unique.dtype == dtype
    assert {part.dtype for part in local} == {dtype}
    assert (unique.tolist(), [part.tolist() for part in local]) == reference.unique_and_compact(lists)
    assert offsets.tolist() == [0, len(unique)]


def test_by_type() -> None:
    nodes = {"a": tensors([[3, 1], [1, 2]]), "b": tensors([[7, 7]])}
    unique, local, offsets = ops.unique_and_compact(nodes)
    assert {kind: ids.tolist() for kind, ids in unique.items()} == {"a": [3, 1, 2], "b": [7]}
    assert {kind: [part.tolist() for part in parts] for kind, parts in local.items()} == {
        "a": [[0, 1], [1, 2]],
        "b": [[0, 0]],
    }
    assert {kind: part.tolist() for kind, part in offsets.items()} == {"a": [0, 3], "b": [0, 1]}


def test_no_type_and_no_ids_are_nothing() -> None:
    assert ops.unique_and_compact({}) == ({}, {}, {})
    unique, local, offsets = ops.unique_and_compact(tensors([[], []]))
    assert (unique.tolist(), [part.tolist() for part in local], offsets.tolist()) == ([], [[], []], [0, 0])


def test_it_can_be_waited_for() -> None:
    unique, (local,), _ = ops.unique_and_compact(tensors([[3, 3]]), async_op=True).wait()
    assert (unique.tolist(), local.tolist()) == ([3], [0, 0])
    with pytest.raises(ValueError, match="rank and world_size must be 0 and 1, but are 0 and 4"):
        ops.unique_and_compact(tensors([[3]]), world_size=4)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"^nodes is an empty list; give at least one tensor"):
        ops.unique_and_compact([])
    with pytest.raises(ValueError, match=r"^nodes\['a'\] is an empty list"):
        ops.unique_and_compact({"a": []})
    with pytest.raises(ValueError, match=r"^nodes\['a'\]\[1\] must have 1 dimension, but has shape \(1, 2\)"):
        ops.unique_and_compact({"a": [torch.arange(2), torch.arange(2)[None]]})
    with pytest.raises(TypeError, match=r"^nodes must have one dtype, but has \[torch.int64, torch.int32\]"):
        ops.unique_and_compact([torch.arange(2), torch.arange(2).int()])
    with pytest.raises(ValueError, match=r"^nodes must hold ids of 0 or more, but holds -1"):
        ops.unique_and_compact(tensors([[2], [-1]]))
