import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.devices import Device, Put, results
from tests.ops.graphs import ID_DTYPES, strided
from tests.refusals import check_refused

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip
SHAPES = [(), (1,), (2,), (3,), (4,), (8,), (13,), (100,), (2, 3), (1, 1, 1), (0,), (3, 0, 2)]
"""Of rows."""


def random_values(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return random bytes seen as a dtype, so that among floats there are infinities and all kinds of nan."""
    count = math.prod(shape)
    top = 2 if dtype == torch.bool else 256
    values = torch.randint(0, top, (count * dtype.itemsize,), dtype=torch.uint8)
    return values.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compare bit for bit, for a nan equals nothing."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    bytes_of = [tensor.contiguous().flatten().view(torch.uint8) for tensor in (left, right) if tensor.numel()]
    return not bytes_of or bytes_of[0].equal(bytes_of[1])


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("ids", ID_DTYPES, ids=str)
@settings(max_examples=4 * settings().max_examples)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from(SHAPES),
    rows=st.integers(0, 20),
    places=st.lists(st.integers(0, 19), max_size=30),
)
def test_equal_to_the_reference(
    device: Device, ids: torch.dtype, dtype: torch.dtype, shape: tuple[int, ...], rows: int, places: list[int]
) -> None:
    values = random_values((rows, *shape), dtype)
    index = [place % rows for place in places if rows]
    expected = reference.gather_rows(values, index) if index else values[:0]

    def gather(put: Put) -> list[torch.Tensor]:
        given = put(values), put(torch.tensor(index, dtype=ids))
        return [ops.gather_rows(*given), ops.index_select(*given)]

    for found in results(device, gather):
        assert all(part.is_contiguous() and same(part, expected) for part in found)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_rows_of_any_dtype_and_size() -> None:
    for dtype, shape in product(DTYPES, SHAPES):
        values = random_values((5, *shape), dtype)
        result = ops.gather_rows(values, torch.tensor([4, 0, 4]))
        assert same(result, reference.gather_rows(values, [4, 0, 4])), (dtype, shape)
    for row_bytes in (*range(1, 20), 31, 63, 64, 65, 127, 128, 129, 400, 4097):
        values, index = random_values((300, row_bytes), torch.uint8), torch.randint(0, 300, (1000,))
        assert ops.gather_rows(values, index).equal(values[index]), row_bytes


def test_values_and_index_need_not_be_contiguous() -> None:
    index = strided(torch.randint(0, 25, (40,)))
    for columns in (1, 3, 8):
        wide = torch.randn(columns * 2, 50)
        for values in (wide.T, wide.T[:, ::2], wide.T[::2], wide[:1].expand(50, 50), wide.T[10:], wide.T.flip(0)):
            assert ops.gather_rows(values, index).equal(values[index]), (columns, values.stride())
    values = torch.randn(5, 3, dtype=torch.complex64).conj()
    assert ops.gather_rows(values, torch.tensor([4, 0])).equal(values[[4, 0]].resolve_conj())


def test_values_may_start_at_any_byte(device: Device) -> None:
    """Views of a tensor, and the memory of an array, which may itself start at any byte."""
    index, cases = torch.tensor([9, 0, 3, 3]), list(product((2, 4, 8, 12, 32), (1, 3, 8)))
    stored = random_values((400,), torch.uint8)

    def gather(put: Put) -> list[torch.Tensor]:
        there = put(stored)
        return [ops.gather_rows(there[at : at + 10 * size].view(10, size), put(index)) for size, at in cases]

    for found in results(device, gather):
        for (size, at), rows in zip(cases, found, strict=True):
            assert rows.equal(stored[at : at + 10 * size].view(10, size)[index]), (size, at)
    odd = torch.from_numpy(np.arange(100, dtype=np.uint8)[1:])
    for values in (odd[:80].reshape(10, 8), odd[-odd.data_ptr() % 8 :][:80].reshape(10, 8)):
        assert ops.gather_rows(values, index).equal(values[index])


def test_values_with_a_gradient_are_copied_without_it_only_where_none_is_wanted() -> None:
    values = torch.randn(5, 3, requires_grad=True)
    check_refused([
        (lambda: ops.gather_rows(values, torch.tensor([4, 0])), ValueError,
         r"values requires gradients, .*; give .detach\(\), or index it: values\[index\]"),
    ])  # fmt: skip
    with torch.no_grad():
        result = ops.gather_rows(values, torch.tensor([4, 0]))
    assert not result.requires_grad
    assert result.equal(values.detach()[[4, 0]])


def test_the_result_is_a_copy() -> None:
    values = torch.zeros(3, 2)
    ops.gather_rows(values, torch.tensor([1]))[:] = 1
    assert values.sum() == 0


@pytest.mark.parametrize("columns", [1, 24])
def test_rows_beyond_4_gb(disk_path: Path, columns: int) -> None:
    """The file has holes, and so takes no space but where it is written."""
    rows = (5 << 30) // (4 * columns)
    stored = np.memmap(disk_path / "values", dtype=np.float32, mode="w+", shape=(rows, columns))
    index = torch.tensor([rows - 1, 0, (1 << 31) // (4 * columns), (1 << 32) // (4 * columns) + 1, rows - 1])
    for place, row in enumerate(index.tolist()):
        stored[row] = np.arange(columns) + 100 * place
    expected = np.array(stored[index.numpy()])
    values = torch.from_numpy(stored)
    for dtype in ID_DTYPES:
        assert ops.gather_rows(values, index.to(dtype)).numpy().tolist() == expected.tolist()


def test_a_single_value_may_have_any_stride() -> None:
    values = torch.arange(10).reshape(1, 10)[:, 3:5].T[:1, 0]
    assert ops.gather_rows(torch.arange(6).reshape(1, 6)[:, 2], torch.tensor([0, 0])).tolist() == [2, 2]
    assert ops.gather_rows(values, torch.tensor([0])).tolist() == [3]


def test_numbers_are_taken_as_int32_where_all_that_are_taken_fit() -> None:
    index = torch.tensor([0, 3, 1, 0])
    for largest, dtype in (
        ((1 << 31) - 1, torch.int32), (1 << 31, torch.int64), (1 << 40, torch.int64), (-1, torch.int64)
    ):  # fmt: skip
        found = ops.take_small(torch.tensor([3, largest, 0, 9, 1 << 50]), index)
        assert (found.tolist(), found.dtype) == ([3, 9, largest, 3], dtype)
    for dtype in (torch.uint8, torch.int32):  # which have few bits as they are
        assert ops.take_small(torch.tensor([4, 5], dtype=dtype), torch.tensor([1])).dtype == dtype
