import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.ops import gather_by_page, gather_each_by_page
from graphfeed.ops.cpu.pages import BLOCK, CHUNK, PAGE
from graphfeed.ops.cpu.rows.gather_by_page import gather_by_page as kernel
from graphfeed.ops.rows.gather_by_page import PAGE_BITS, new_order
from tests.digests import assert_same
from tests.ops.graphs import ID_DTYPES


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, BLOCK, 5 * BLOCK + 3, CHUNK + 7])
def test_values_come_in_the_order_asked_for(count: int, dtype: torch.dtype, tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", torch.randperm(300_000).to(dtype).numpy())
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    positions = torch.randint(0, 300_000, (count,))
    assert torch.equal(gather_by_page(values, positions), values[positions])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_several_parts_are_read_together(dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "values.npy", torch.randperm(300_000).to(dtype).numpy())
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    parts = [torch.randint(0, 300_000, (count,)) for count in (7, 0, CHUNK + 3, 1000)]
    expected = [values[part] for part in parts]
    assert_same(gather_each_by_page(values, parts), expected)
    assert gather_each_by_page(values, []) == []
    assert_same(gather_each_by_page(values[:0], [torch.empty(0, dtype=torch.int64)]), [values[:0]])
    monkeypatch.setattr(sys.modules[new_order.__module__], "PAGES_AT_ONCE", 5)
    with ThreadPoolExecutor(2) as threads:
        assert_same(
            gather_each_by_page(values[3:], [part[part < 200_000] for part in parts], threads.map),
            [values[3:][part[part < 200_000]] for part in parts],
        )


def test_pages_far_apart_are_sorted_by_all_digits(tmp_path: Path) -> None:
    size = 1 << 33
    with (tmp_path / "values").open("wb") as file:
        file.truncate(8 * size)  # a hole: it takes no room on the disk
    values = torch.from_numpy(np.memmap(tmp_path / "values", np.int64, "r+"))
    positions = torch.cat([torch.randint(0, size, (500,)), torch.tensor([0, size - 1])])
    values[positions] = positions + 1
    order, out = new_order(), torch.empty_like(positions)
    kernel(values, positions, PAGE_BITS, order, out)
    assert torch.equal(out, positions + 1)
    pages = order.keys[: len(positions)] >> PAGE
    assert np.array_equal(pages, np.sort(pages))
    assert pages[-1] == 8 * size // mmap.PAGESIZE - 1
