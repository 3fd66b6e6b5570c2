from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest

from graphfeed.ops.memory.mappings import TABLE, Region, mapping_around, read_regions

PIECES = [
    Region(0, 4, 0, 1, "/a", True, True), Region(4, 8, 4, 1, "/a", True, False), Region(8, 12, 0, 1, "/a", True, True),
    Region(12, 16, 4, 2, "/b", True, True), Region(20, 24, 12, 2, "/b", True, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (1, 2, [0, 1]),
        (5, 8, [0, 1]),
        (3, 9, []),
        (8, 12, [2]),
        (13, 14, [3]),
        (17, 18, []),
        (30, 31, []),
    ],
)
def test_a_mapping_is_all_its_pieces_that_show_one_part_of_a_file(start: int, end: int, found: list[int]) -> None:
    assert mapping_around(start, end, PIECES) == [PIECES[number] for number in found]
    assert mapping_around(start, end, []) == []


def test_memory_of_a_file_is_told_from_other_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(5000.0))
    mapped, made = np.load(tmp_path / "rows.npy", mmap_mode="c"), np.zeros(5 << 20)
    regions = read_regions(TABLE)
    begin, end = mapped.ctypes.data - mapped.offset, mapped.ctypes.data + mapped.nbytes
    (found,) = mapping_around(begin, end, regions)
    assert (found.start, found.stop) == (begin, -(-end // PAGESIZE) * PAGESIZE)
    assert mapping_around(made.ctypes.data, made.ctypes.data + made.nbytes, regions) == []


def test_where_the_system_tells_nothing_no_memory_lies_in_a_file() -> None:
    assert read_regions(Path("/nowhere")) == []
