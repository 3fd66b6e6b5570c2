from mmap import PAGESIZE, mmap
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.ops.own_pages import MAPPED_BYTES, TABLE, Region, mapping_around, own_pages, read_regions

PIECES = [
    Region(0, 4, 0, 1, "/a", True, True), Region(4, 8, 4, 1, "/a", True, False), Region(8, 12, 0, 1, "/a", True, True),
    Region(12, 16, 4, 2, "/b", True, True), Region(20, 24, 12, 2, "/b", True, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (1, 2, (0, 8)),
        (5, 8, (0, 8)),
        (3, 9, None),
        (8, 12, (8, 12)),
        (13, 14, (12, 16)),
        (17, 18, None),
        (30, 31, None),
    ],
)
def test_a_mapping_is_all_its_pieces_that_show_one_part_of_a_file(
    start: int, end: int, found: tuple[int, int] | None
) -> None:
    assert mapping_around(start, end, PIECES) == found
    assert mapping_around(start, end, []) is None


def test_small_tensors_share_their_pages_and_large_or_mapped_ones_do_not(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(5000.0))
    mapped = torch.from_numpy(np.load(tmp_path / "rows.npy", mmap_mode="c"))
    own = torch.frombuffer(mmap(-1, 3 * PAGESIZE), dtype=torch.uint8)[5:100]
    regions = read_regions(TABLE)
    assert own_pages(torch.zeros(1000), regions) is None
    assert own_pages(own, regions) == (own.data_ptr() - 5, own.data_ptr() - 5 + 3 * PAGESIZE)
    # glibc keeps up to twice the size from which on it maps blocks, and may give a block of that.
    large = torch.empty(3 * MAPPED_BYTES + 1, dtype=torch.uint8)
    for tensor in (mapped, large):
        start, end = own_pages(tensor, read_regions(TABLE)) or (0, 0)
        assert start % PAGESIZE == end % PAGESIZE == 0
        assert start <= tensor.data_ptr() < start + PAGESIZE
        assert 0 <= end - tensor.data_ptr() - tensor.nbytes < PAGESIZE


def test_where_the_system_tells_nothing_only_what_begins_a_page_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.ops.own_pages.TABLE", Path("/nowhere"))
    assert read_regions(Path("/nowhere")) == []
    large = torch.frombuffer(mmap(-1, MAPPED_BYTES), dtype=torch.uint8)
    assert own_pages(large, []) == (large.data_ptr(), large.data_ptr() + MAPPED_BYTES)
    assert own_pages(torch.frombuffer(mmap(-1, PAGESIZE), dtype=torch.uint8), []) is None
    assert own_pages(torch.empty(MAPPED_BYTES, dtype=torch.uint8), []) is None
