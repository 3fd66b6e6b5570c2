import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import read_bytes, read_rows
from graphfeed.ops.rows import read_blocks

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
