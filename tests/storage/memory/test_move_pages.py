import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphfeed.ops.own_pages import has_own_mapping
from graphfeed.ops.pinned import LockedPages
from graphfeed.storage.memory import move_pages as module
from graphfeed.storage.memory.memory_map import FAILED, SYSTEM, Bytes, MemoryFile
from graphfeed.storage.memory.move_pages import FEWEST_BYTES, can_move, move_pages
from graphfeed.storage.memory.shared import SharedBlock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages move on Linux alone")
LARGE = 4 * FEWEST_BYTES
needs_glibc = pytest.mark.skipif(not hasattr(SYSTEM, "gnu_get_libc_version"), reason="the C library is another one")


def numbers(size: int = LARGE) -> torch.Tensor:
    return torch.arange(size // 8)


def from_numpy() -> torch.Tensor:
    return torch.from_numpy(np.arange(LARGE // 8))


def resident_bytes() -> int:
    """Return the memory of this process that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


@needs_glibc
@pytest.mark.parametrize("make", [numbers, from_numpy])
def test_a_large_tensor_is_never_there_twice(make: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", LARGE // 16)
    tensor, taken = make(), []
    before, write = resident_bytes(), module.write

    def count(data: Bytes, descriptor: int, offset: int) -> None:
        write(data, descriptor, offset)
        taken.append(resident_bytes() + 512 * os.fstat(descriptor).st_blocks - before)

    monkeypatch.setattr(module, "write", count)
    block = SharedBlock.create([tensor])
    assert len(taken) == 18
    assert max(taken) < 1.1 * LARGE - LARGE
    assert torch.equal(block.tensors[0], make())


@needs_glibc
def test_who_still_has_the_memory_reads_what_was_there_and_writes_to_its_own() -> None:
    tensor, other = numbers(), torch.arange(5.0)
    last = tensor[-1:]
    block = SharedBlock.create([other, tensor])
    assert torch.equal(tensor, numbers())
    assert block.tensors[1].data_ptr() % mmap.PAGESIZE == tensor.data_ptr() % mmap.PAGESIZE
    tensor[1000] = last[0] = -1
    assert torch.equal(block.tensors[1], numbers())
    assert torch.equal(block.tensors[0], other)
    again = SharedBlock.create([tensor])
    del tensor
    assert last.tolist() == [-1]
    assert again.tensors[0][[0, 1000, -1]].tolist() == [0, -1, -1]


@needs_glibc
def test_what_can_not_be_moved_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = torch.frombuffer(mmap.mmap(-1, LARGE), dtype=torch.uint8)
    given = torch.frombuffer(bytearray(LARGE), dtype=torch.uint8)
    inside = torch.from_numpy(np.zeros(LARGE + 4096, dtype=np.uint8)[4096:])
    assert [can_move(tensor) for tensor in (mapped, inside, numbers(FEWEST_BYTES // 2), given[::2])] == [False] * 4
    assert not has_own_mapping(mapped.data_ptr() + 32, LARGE - 32)
    assert torch.equal(SharedBlock.create([inside]).tensors[0], inside)
    tensor = numbers()
    assert can_move(tensor)
    part = LockedPages(tensor.data_ptr() + 8192, tensor.data_ptr() + 12288, tensor)
    monkeypatch.setattr(module, "LOCKED", [part])
    assert not can_move(tensor)
    monkeypatch.setattr(module, "LOCKED", [])
    monkeypatch.setattr(module, "is_page_locked", lambda _: True)
    assert not can_move(tensor)
    monkeypatch.setattr(module, "is_page_locked", lambda _: False)
    assert can_move(tensor)
    monkeypatch.setattr(module, "SYSTEM", SimpleNamespace(mmap=None))
    assert not can_move(tensor)


@needs_glibc
def test_where_no_page_can_be_mapped_the_rest_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = numbers()
    monkeypatch.setattr(module, "SYSTEM", SimpleNamespace(mmap=lambda *_: FAILED, gnu_get_libc_version=None))
    block = SharedBlock.create([tensor])
    assert torch.equal(block.tensors[0], tensor)
    tensor[0] = 5
    assert block.tensors[0][0] == 0


def test_an_offset_that_does_not_fit_the_memory_is_refused() -> None:
    tensor, file = torch.zeros(10_000, dtype=torch.uint8), MemoryFile.create(20_000)
    with pytest.raises(ValueError, match="offset must be as far behind a page's start as the tensor"):
        move_pages(tensor, file.descriptor, tensor.data_ptr() % mmap.PAGESIZE + 64)
