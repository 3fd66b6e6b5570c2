import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import ID_DTYPES, strided

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]


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
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("index_dtype", ID_DTYPES, ids=str)
@given(
    st.integers(1, 20), st.sampled_from([(), (1,), (2,), (3,), (4,), (8,), (13,), (100,), (2, 3), (1, 1, 1)]), st.data()
)
def test_equal_to_the_reference(
    dtype: torch.dtype, index_dtype: torch.dtype, rows: int, shape: tuple[int, ...], data: st.DataObject
) -> None:
    values = random_values((rows, *shape), dtype)
    index = data.draw(st.lists(st.integers(0, rows - 1), max_size=30))
    result = ops.gather_rows(values, torch.tensor(index, dtype=index_dtype))
    assert result.is_contiguous()
    assert same(result, reference.gather_rows(values, index))


@pytest.mark.parametrize("row_bytes", [*range(1, 20), 31, 63, 64, 65, 127, 128, 129, 400, 4097])
def test_rows_of_any_size(row_bytes: int) -> None:
    values = random_values((300, row_bytes), torch.uint8)
    index = torch.randint(0, 300, (1000,))
    assert ops.gather_rows(values, index).equal(values[index])


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 0), (0, 3), (0,), (0, 0), (3, 0, 2)])
def test_empty_rows_and_no_rows(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.empty(shape, dtype=dtype)
    for count in (0, shape[0]):
        result = ops.gather_rows(values, torch.arange(count))
        assert result.shape == (count, *shape[1:])
        assert result.dtype == dtype


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_values_and_index_need_not_be_contiguous(columns: int) -> None:
    wide = torch.randn(columns * 2, 50)
    index = strided(torch.randint(0, 25, (40,)))
    for values in (wide.T, wide.T[:, ::2], wide.T[::2], wide[:1].expand(50, 50), wide.T[10:], wide.T.flip(0)):
        assert ops.gather_rows(values, index).equal(values[index])


@pytest.mark.parametrize("row_bytes", [2, 4, 8])
@pytest.mark.parametrize("offset", [1, 3])
def test_values_may_start_at_any_byte(row_bytes: int, offset: int) -> None:
    stored = random_values((offset + 10 * row_bytes,), torch.uint8)
    values = stored[offset:].reshape(10, row_bytes)
    index = torch.tensor([9, 0, 3, 3])
    assert ops.gather_rows(values, index).equal(values[index])


@pytest.mark.parametrize("row_bytes", [2, 4, 8, 12])
def test_memory_may_start_at_any_byte(row_bytes: int) -> None:
    stored = np.arange(1 + 10 * row_bytes, dtype=np.uint8)
    values = torch.from_numpy(stored[1:]).reshape(10, row_bytes)
    index = torch.tensor([9, 0, 3, 3])
    assert ops.gather_rows(values, index).equal(values[index])


def test_conjugated_values() -> None:
    values = torch.randn(5, 3, dtype=torch.complex64).conj()
    assert ops.gather_rows(values, torch.tensor([4, 0])).equal(values[[4, 0]].resolve_conj())


def test_an_aligned_part_of_memory_that_is_not() -> None:
    stored = torch.from_numpy(np.arange(100, dtype=np.uint8)[1:])
    values = stored[-stored.data_ptr() % 8 :][:80].reshape(10, 8)
    assert ops.gather_rows(values, torch.tensor([9, 0])).equal(values[[9, 0]])


def test_values_with_a_gradient_are_copied_without_it_only_where_none_is_wanted() -> None:
    values = torch.randn(5, 3, requires_grad=True)
    with pytest.raises(
        ValueError, match=r"values requires gradients, .*; give .detach\(\), or index it: values\[index\]"
    ):
        ops.gather_rows(values, torch.tensor([4, 0]))
    with torch.no_grad():
        result = ops.gather_rows(values, torch.tensor([4, 0]))
    assert not result.requires_grad
    assert result.equal(values.detach()[[4, 0]])


def test_the_result_is_a_copy() -> None:
    values = torch.zeros(3, 2)
    ops.gather_rows(values, torch.tensor([1]))[:] = 1
    assert values.sum() == 0


@pytest.mark.parametrize("columns", [1, 24])
def test_rows_beyond_4_gb(tmp_path: Path, columns: int) -> None:
    """The file has holes, and so takes no space but where it is written."""
    rows = (5 << 30) // (4 * columns)
    stored = np.memmap(tmp_path / "values", dtype=np.float32, mode="w+", shape=(rows, columns))
    index = torch.tensor([rows - 1, 0, (1 << 31) // (4 * columns), (1 << 32) // (4 * columns) + 1, rows - 1])
    for place, row in enumerate(index.tolist()):
        stored[row] = np.arange(columns) + 100 * place
    expected = np.array(stored[index.numpy()])
    values = torch.from_numpy(stored)
    for dtype in ID_DTYPES:
        assert ops.gather_rows(values, index.to(dtype)).numpy().tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (torch.tensor([0, 5]), IndexError, "index must lie in 0 .. 2, but holds 5"),
        (torch.tensor([3]), IndexError, "index must lie in 0 .. 2, but holds 3"),
        (torch.tensor([0, -1]), IndexError, "index must lie in 0 .. 2, but holds -1"),
        (torch.tensor([2**40]), IndexError, f"index must lie in 0 .. 2, but holds {2**40}"),
        (torch.tensor([True]), TypeError, "index must be torch.int32 or torch.int64, but is torch.bool"),
        (torch.tensor([1.0]), TypeError, "index must be .*, but is torch.float32"),
        (torch.tensor([1], dtype=torch.uint8), TypeError, "index must be .*, but is torch.uint8"),
        ([1], TypeError, "index must be a torch.Tensor, but is a list"),
        (torch.tensor([[1]]), ValueError, r"index must have 1 dimension, but has shape \(1, 1\)"),
        (torch.tensor(1), ValueError, r"index must have 1 dimension, but has shape \(\)"),
    ],
)
def test_wrong_indices_are_named(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.gather_rows(torch.zeros(3, 2), index)


def test_values_must_lie_where_there_are_kernels() -> None:
    with pytest.raises(ValueError, match=r"gather works on cpu, but values lies on meta; move one to the other with"):
        ops.gather_rows(torch.zeros(3, 2, device="meta"), torch.tensor([1]))


def test_a_single_value_may_have_any_stride() -> None:
    values = torch.arange(10).reshape(1, 10)[:, 3:5].T[:1, 0]
    assert ops.gather_rows(torch.arange(6).reshape(1, 6)[:, 2], torch.tensor([0, 0])).tolist() == [2, 2]
    assert ops.gather_rows(values, torch.tensor([0])).tolist() == [3]


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [((1 << 31) - 1, torch.int32), (1 << 31, torch.int64), (1 << 40, torch.int64), (-1, torch.int64)],
)
def test_numbers_are_taken_as_int32_where_all_that_are_taken_fit(largest: int, dtype: torch.dtype) -> None:
    found = ops.take_small(torch.tensor([3, largest, 0, 9, 1 << 50]), torch.tensor([0, 3, 1, 0]))
    assert (found.tolist(), found.dtype) == ([3, 9, largest, 3], dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_numbers_of_few_bits_keep_their_dtype(dtype: torch.dtype) -> None:
    assert ops.take_small(torch.tensor([4, 5], dtype=dtype), torch.tensor([1])).dtype == dtype
