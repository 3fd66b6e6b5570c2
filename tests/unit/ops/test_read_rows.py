"""Rows are read from files and gathered from tensors as indexing does it."""

import math
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops import read_bytes, read_rows
from graphfeed.ops.rows import read_blocks
from tests.kinds import reference
from tests.kinds.graphs import ID_DTYPES, strided
from tests.kinds.refusals import check_refused
from tests.stand_ins.devices import Device, Put, results

ROWS = torch.randint(0, 256, (3000, 5), dtype=torch.uint8)
START = 7


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("rows") / "rows"
    path.write_bytes(b"x" * START + bytes(ROWS.reshape(-1).tolist()))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def check(descriptor: int, ids: torch.Tensor, order: torch.Tensor, gap_bytes: int = 0) -> None:
    """Read the rows at ascending ids to places in another order."""
    out = torch.zeros(len(ids), 5, dtype=torch.uint8)
    read_rows(descriptor, START, ids, out, order, gap_bytes)
    wanted = torch.zeros_like(out)
    wanted[order] = ROWS[ids]
    assert torch.equal(out, wanted)


@given(
    gap_bytes=st.sampled_from([0, 10, 20_000]),
    ids=st.lists(st.integers(0, 30) | st.integers(0, 2999), max_size=60),
    seed=st.integers(0, 5),
)
def test_rows_lie_where_they_should(descriptor: int, gap_bytes: int, ids: list[int], seed: int) -> None:
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
    check(descriptor, torch.tensor(sorted(ids), dtype=torch.int64), order, gap_bytes)


def test_long_runs_take_several_reads(descriptor: int) -> None:
    for repeats in (1, 2, 300):
        ids = torch.arange(3000).repeat_interleave(repeats)
        check(descriptor, ids, torch.arange(len(ids)))
        check(descriptor, ids, torch.arange(len(ids)).flip(0))


def test_a_large_run_is_split(tmp_path: Path) -> None:
    rows = torch.arange(6 << 20, dtype=torch.int64).reshape(6, -1)  # 8 MiB each
    path = tmp_path / "rows"
    path.write_bytes(rows.numpy().tobytes())
    out = torch.zeros_like(rows)
    with path.open("rb") as file:
        read_rows(file.fileno(), 0, torch.arange(6), out, torch.arange(6))
    assert torch.equal(out, rows)


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct reads")
def test_reads_over_gaps_may_pass_by_the_page_cache(disk_path: Path) -> None:
    rows = torch.arange(1 << 18, dtype=torch.int32).reshape(-1, 32)
    path = disk_path / "rows"
    path.write_bytes(b"x" * 128 + rows.numpy().tobytes() + b"y")  # the last block is shorter
    ids = torch.arange(0, len(rows), 3)
    out = torch.zeros(len(ids), 32, dtype=torch.int32)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("this file system has no direct reads")
    try:
        read_rows(descriptor, 128, ids, out, torch.arange(len(ids)), gap_bytes=8192)
        with pytest.raises(EOFError, match="the file ends at 1048705, but 127 bytes more are needed from there"):
            read_rows(descriptor, 128, torch.tensor([len(rows)]), out, torch.tensor([0]))
    finally:
        os.close(descriptor)
    assert torch.equal(out, rows[ids])


def test_an_end_of_file_before_the_row_is_named(descriptor: int) -> None:
    out = torch.zeros(3, 5, dtype=torch.uint8)
    with pytest.raises(EOFError, match=r"the file ends at 15007, but 5 bytes more are needed from there"):
        read_rows(descriptor, START, torch.tensor([2998, 2999, 3000]), out, torch.arange(3))
    assert torch.equal(out[:2], ROWS[2998:])
    with pytest.raises(EOFError, match=r"the file ends at 15007, but 5 bytes more are needed from there"):
        read_rows(descriptor, START, torch.tensor([2998, 3000]), out, torch.arange(2), gap_bytes=5)
    with pytest.raises(EOFError, match="the file ends at 15007, but 1 bytes more"):
        read_bytes(descriptor, 15006, memoryview(bytearray(2)))


def test_reads_that_fall_short_go_on_from_a_block(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read, offsets, limits = os.preadv, [], [700, 5000, 6000, 1 << 20]

    def read_less(opened: int, buffers: list[memoryview], offset: int) -> int:
        offsets.append(offset)
        return read(opened, [buffers[0][: limits[len(offsets) - 1]]], offset)

    monkeypatch.setattr(os, "preadv", read_less)
    expected = (b"x" * START + bytes(ROWS.reshape(-1).tolist()))[4000:14_500]
    assert bytes(read_blocks(descriptor, 4000, 10_500)) == expected
    assert offsets == [0, 0, 4096, 8192]


def test_a_failed_read_says_why() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_rows(10**6, 0, torch.tensor([0]), torch.zeros(1, 1), torch.tensor([0]))


def test_nothing_to_read_touches_no_file() -> None:
    read_rows(-1, 0, torch.tensor([], dtype=torch.int64), torch.zeros(0, 1), torch.tensor([], dtype=torch.int64))
    read_rows(-1, 0, torch.tensor([0]), torch.zeros(1, 0), torch.tensor([0]))


def test_holes_of_a_sparse_file_are_zeros(disk_path: Path) -> None:
    path = disk_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 35)
    out = torch.ones(2, 1)
    with path.open("rb") as file:
        read_rows(file.fileno(), 0, torch.tensor([5, (1 << 33) - 1]), out, torch.arange(2))
    assert out.tolist() == [[0.0], [0.0]]


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
