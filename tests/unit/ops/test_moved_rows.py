import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import (
    copy_rows,
    delete_from_columns,
    delete_rows,
    gather_by_page,
    match_pairs,
)
from graphfeed.ops.cpu.pages import BLOCK, CHUNK, PAGE
from graphfeed.ops.cpu.rows.gather_by_page import gather_by_page as kernel
from graphfeed.ops.rows.gather_by_page import PAGE_BITS, new_order
from tests.kinds.graphs import ID_DTYPES
from tests.kinds.refusals import check_refused
from tests.stand_ins.devices import Device, Put, results

COUNTS = st.lists(st.integers(0, 5), max_size=8)


def some_of(data: st.DataObject, count: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, count - 1))) if count else [])


@given(
    dtype=st.sampled_from([torch.bool, torch.int16, torch.bfloat16, torch.float64]),
    width=st.sampled_from([1, 3, 100]),
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 7)), max_size=30),
)
def test_rows_are_copied_to_where_they_should_go_in_order(
    device: Device, dtype: torch.dtype, width: int, pairs: list[tuple[int, int]]
) -> None:
    source = torch.arange(6 * width).reshape(6, width).to(dtype)
    wanted = torch.zeros(8, width, dtype=dtype)
    for start, target in pairs:
        if target >= 0:
            wanted[target] = source[start]
    starts, targets = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()

    def copy(put: Put) -> torch.Tensor:
        out = put(torch.zeros(8, width, dtype=dtype))
        copy_rows(put(source), put(starts), out, put(targets))
        return out

    for found in results(device, copy, each_order=True):
        assert torch.equal(found, wanted)


def test_other_dtypes_of_as_many_bytes_keep_their_bits() -> None:
    out = torch.zeros(1, 1, dtype=torch.int64)
    copy_rows(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), out, torch.tensor([0]))
    assert out.view(torch.float32).tolist() == [[1.0, 2.0]]


def test_rows_without_bytes_are_no_trouble() -> None:
    copy_rows(torch.zeros(2, 0), torch.tensor([1]), torch.zeros(2, 0), torch.tensor([0]))
    copy_rows(torch.zeros(2, 3), torch.tensor([1]), torch.zeros(0, 3), torch.tensor([-1]))


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_values_are_gathered_by_page_in_the_order_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", torch.randperm(300_000).to(dtype).numpy())
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    for count in (0, 1, BLOCK, 5 * BLOCK + 3, CHUNK + 7):
        positions = torch.randint(0, 300_000, (count,))
        assert torch.equal(gather_by_page(values, positions), values[positions]), count


def test_pages_far_apart_are_sorted_by_all_digits(disk_path: Path) -> None:
    size = 1 << 33
    with (disk_path / "values").open("wb") as file:
        file.truncate(8 * size)  # a hole: it takes no room on the disk
    values = torch.from_numpy(np.memmap(disk_path / "values", np.int64, "r+"))
    positions = torch.cat([torch.randint(0, size, (500,)), torch.tensor([0, size - 1])])
    values[positions] = positions + 1
    order, out = new_order(), torch.empty_like(positions)
    kernel(values, positions, PAGE_BITS, order, out)
    assert torch.equal(out, positions + 1)
    pages = order.keys[: len(positions)] >> PAGE
    assert np.array_equal(pages, np.sort(pages))
    assert pages[-1] == 8 * size // mmap.PAGESIZE - 1


@given(
    data=st.data(),
    rows=st.integers(0, 40),
    shape=st.sampled_from([(), (3,), (0,), (2, 2)]),
    dtype=st.sampled_from([torch.bool, torch.int16, torch.int32, torch.int64, torch.float32]),
)
def test_the_rows_that_are_not_deleted_stay(
    device: Device, data: st.DataObject, rows: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = torch.randint(0, 100, (rows, *shape)).to(dtype)
    gone = torch.tensor(some_of(data, rows), dtype=torch.int64)
    stay = torch.tensor([row for row in range(rows) if row not in gone], dtype=torch.int64)
    for result in results(device, lambda put: delete_rows(put(values), put(gone))):
        assert result.dtype == dtype
        assert torch.equal(result, values[stay])


@given(data=st.data(), counts=COUNTS, dtype=st.sampled_from(ID_DTYPES))
def test_columns_lose_what_goes(device: Device, data: st.DataObject, counts: list[int], dtype: torch.dtype) -> None:
    gone = torch.tensor(some_of(data, sum(counts)), dtype=torch.int64)
    columns = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
    left = torch.bincount(delete_rows(columns, gone), minlength=len(counts))
    indptr = torch.tensor([0, *counts]).cumsum(0).to(dtype)
    for result in results(device, lambda put: delete_from_columns(put(indptr), put(gone))):
        assert result.dtype == dtype
        assert torch.equal(result.long(), torch.cat([torch.tensor([0]), left]).cumsum(0))


def test_nothing_to_leave_out_costs_no_copy() -> None:
    values, none = torch.arange(3), torch.empty(0, dtype=torch.int64)
    assert delete_rows(values, none) is values
    assert delete_from_columns(values, none) is values


@pytest.mark.parametrize("inference", [False, True])
def test_places_of_edges_that_somebody_has_changed_are_refused(inference: bool) -> None:
    indptr, sources = torch.tensor([0, 2, 3]), torch.tensor([5, 7, 5])
    with torch.inference_mode(inference):
        places = match_pairs(indptr, sources, torch.tensor([1, 2]), torch.tensor([[7, 1]]))
        assert delete_rows(sources, places).tolist() == [5, 5]
        assert delete_from_columns(indptr, places).tolist() == [0, 1, 2]
        places.numpy()[0] = 9  # which no version counter of torch notices
        check_refused([
            (lambda: delete_rows(sources, places), IndexError, "places must be in 0 .. 2, but hold 9"),
            (lambda: delete_from_columns(indptr, places), IndexError, "places must be in 0 .. 2, but hold 9"),
        ])  # fmt: skip


def test_places_that_fall_write_nothing_beyond_the_result() -> None:
    ascending = torch.arange(0, 40, 5)
    falling = torch.cat([ascending, ascending])
    check_refused([(lambda: delete_rows(torch.arange(40), falling), ValueError, "places must ascend, without dup")])
