from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.cpu.compiler.signature import Block, Signature, address_of, lay_out
from tests.ops.cpu.compiler import kernels
from tests.ops.cpu.compiler.kernels import Columns, walk


def columns(ids: torch.dtype = torch.int64) -> Columns:
    """Return two columns, with two ends and one."""
    return Columns(torch.tensor([0, 2, 3]), torch.tensor([2, 0, 1], dtype=ids), torch.arange(6).view(3, 2))


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("add", [()]),
        ("double", [()]),
        ("scale", [("int64", "float32"), ("int64", "float64"), ("int32", "float32"), ("int32", "float64")]),
        ("walk", [("int64",), ("int32",)]),
    ],
)
def test_the_annotations_name_all_choices_of_dtypes(name: str, variants: list[tuple[str, ...]]) -> None:
    assert getattr(kernels, name).signature.variants() == variants


def test_arrays_of_one_name_have_one_dtype_also_inside_of_tuples() -> None:
    signature = Signature(walk.function)
    out, narrow = torch.zeros(6, dtype=torch.int64), torch.tensor([1], dtype=torch.int32)
    assert signature.choose([columns(torch.int32), narrow, out]) == ("int32",)
    with pytest.raises(TypeError, match=r"nodes must be an array of int64 in 1 dimension, but is torch.int32 of shape"):
        signature.choose([columns(torch.int64), narrow, out])
    with pytest.raises(TypeError, match=r"columns.table must be an array of int64 in 2 dimensions, but is torch.uint8"):
        signature.choose([columns()._replace(table=torch.zeros(2, 2, dtype=torch.uint8)), narrow, out])


@pytest.mark.parametrize("count", [2, 4])
def test_a_wrong_number_of_arguments_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        Signature(walk.function).choose([columns(), *[torch.arange(2)] * (count - 1)])


def test_each_argument_has_its_words() -> None:
    words: list[int] = []
    key: list[Any] = []
    kept: list[Any] = []
    array, matrix = np.arange(3), torch.zeros(4, 5)
    lay_out([array, matrix, -1, np.uint64(2**64 - 1), True], words, key, kept)
    assert words == [array.ctypes.data, 3, matrix.data_ptr(), 4, 5, 2**64 - 1, 2**64 - 1, 1]
    assert key == [array.dtype, 1, torch.float32, 2, None, None, None]
    assert kept == []


def test_a_tuple_is_the_address_of_words_of_its_own() -> None:
    words: list[int] = []
    kept: list[Any] = []
    given = columns()
    lay_out([given], words, [], kept)
    (own,) = kept
    assert words == [own.buffer_info()[0]]
    starts, ends, table = given
    assert own.tolist() == [starts.data_ptr(), 3, ends.data_ptr(), 3, table.data_ptr(), 3, 2]


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("is_writable", [False, True])
def test_an_array_s_address_is_found(size: int, is_writable: bool) -> None:
    array = np.zeros(size)
    array.flags.writeable = is_writable
    assert address_of(array) == array.ctypes.data


def run(taken: Any) -> list[int]:
    """Return what a kernel finds in columns, of node 0."""
    out = torch.zeros(3, dtype=torch.int64)
    walk(taken, torch.tensor([0]), out)
    found: list[int] = out.tolist()
    return found


def test_a_block_stands_for_its_tuple_and_its_arrays_can_be_replaced() -> None:
    block = Block(columns())
    assert run(block) == run(columns()) == [2, 2, 5]
    words = block.words.tolist()
    block.put("ends", torch.tensor([1, 1]))
    assert run(block) == run(block.values) == [2, 1, 3]
    assert block.address == block.words.buffer_info()[0]
    assert [place for place, word in enumerate(block.words) if word != words[place]] == [2, 3]


def test_a_block_keeps_what_is_put_into_it_alive_and_leaves_that_to_the_caller_of_lend() -> None:
    block = Block(columns())
    numbers = np.array([1, 1])
    block.lend("ends", numbers)
    assert run(block) == [2, 1, 3]
    assert not any(array is numbers for array in block.arrays.values())
    block.put("ends", numbers)
    assert block.arrays["ends"] is numbers


@pytest.mark.parametrize(
    "wrong", [torch.zeros(2, dtype=torch.int32), np.zeros(2, np.int32), torch.arange(4)[::2], np.arange(4)[::2]]
)
def test_a_block_takes_contiguous_arrays_of_the_same_dtype(wrong: Any) -> None:
    block = Block(columns())
    words = block.words.tolist()
    with pytest.raises(TypeError, match="ends must be a contiguous array of int64, but is"):
        block.put("ends", wrong)
    assert block.words.tolist() == words
