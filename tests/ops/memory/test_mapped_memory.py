import gc
import os
import re
import resource
from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graphfeed.ops.memory import ReadChoice, shared_memory
from graphfeed.ops.memory.shared_memory import (
    HUGE_PAGE,
    SHARED_BYTES,
    SYSTEM,
    MemoryFile,
    SharedMemory,
    collapse,
    empty_shared,
    map_shared,
)  # fmt: skip

linux = pytest.mark.skipif(SYSTEM is None, reason="only Linux maps at a chosen address")
SIZES = [1, 5000, HUGE_PAGE, 3 * HUGE_PAGE + 77]


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = os.memfd_create("graphfeed-test")
    os.truncate(descriptor, max(SIZES))
    yield descriptor
    os.close(descriptor)


def mappings() -> list[str]:
    """Return what the system says of each mapping of the test's file."""
    parts = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    return [part for part in parts if "memfd:graphfeed-test" in part]


@linux
def test_all_mappings_see_what_one_writes_and_go_with_the_last_view_of_them(descriptor: int) -> None:
    for size in SIZES:
        one, other = map_shared(descriptor, size), map_shared(descriptor, size)
        one[:] = np.arange(size, dtype=np.uint64).astype(np.uint8)
        assert one.size == size
        assert np.array_equal(one, other)
        assert os.pread(descriptor, 1, size - 1) == bytes([(size - 1) % 256])
        view = one[size // 2 :]
        del one, other
        gc.collect()
        assert len(mappings()) == 1
        view[0] = 1
        del view
        gc.collect()
        assert mappings() == []


@linux
def test_large_ones_begin_where_a_huge_page_may(descriptor: int) -> None:
    assert all(map_shared(descriptor, HUGE_PAGE + 1).ctypes.data % HUGE_PAGE == 0 for _ in range(3))


@linux
def test_collapsed_memory_keeps_its_bytes_and_others_see_huge_pages_too(descriptor: int) -> None:
    size = max(SIZES)
    memory = map_shared(descriptor, size)
    memory[:] = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    before = memory.copy()
    if not collapse(memory):
        pytest.skip("this system can't do it")
    other = map_shared(descriptor, size)
    assert np.array_equal(memory, before)
    assert np.array_equal(other, before)
    assert all(f"ShmemPmdMapped: {3 * HUGE_PAGE >> 10:8} kB" in text for text in mappings())


def test_nothing_is_collapsed_where_no_huge_page_fits() -> None:
    assert not collapse(np.zeros(100, dtype=np.uint8))
    assert not collapse(np.zeros(3 * HUGE_PAGE, dtype=np.uint8)[1:][: 2 * HUGE_PAGE])


@linux
def test_what_can_not_be_mapped_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="can't be mapped"):
        map_shared(descriptor, HUGE_PAGE)
    os.close(descriptor)


def test_other_systems_map_too(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.ops.memory.shared_memory.SYSTEM", None)
    memory = map_shared(descriptor, max(SIZES))
    memory[0] = 3
    assert os.pread(descriptor, 1, 0) == b"\3"
    assert not collapse(memory)
    assert memory.ctypes.data % PAGESIZE == 0


@linux
@pytest.mark.usefixtures("no_leaks")
def test_a_memory_file_that_is_dropped_is_closed_and_its_memory_lives_on() -> None:
    file = MemoryFile.create(5000)
    descriptor = file.descriptor
    memory = map_shared(descriptor, 5000)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    memory[4999] = 7
    assert memory[4999] == 7


@linux
@pytest.mark.usefixtures("no_leaks")
def test_a_memory_file_is_closed_once_and_takes_no_room_until_it_is_written() -> None:
    file = MemoryFile.create(1 << 36)
    assert os.fstat(file.descriptor).st_blocks == 0
    file.close()
    file.close()
    with pytest.raises(OSError, match="Invalid argument"):
        MemoryFile.create(-1)


@linux
@pytest.mark.usefixtures("small_is_shared", "no_leaks")
def test_where_pages_are_small_or_descriptors_few_memory_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_shared(5000) is not None
    with monkeypatch.context() as patch:
        patch.setattr(shared_memory, "populate", lambda memory: False)
        assert empty_shared(5000) is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "sysconf", lambda name: 8)
        assert empty_shared(5000) is None

    def refuse(size: int) -> SharedMemory:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(SharedMemory, "create", refuse)
    assert empty_shared(5000) is None


def test_large_memory_lies_on_huge_pages_or_is_private() -> None:
    size = SHARED_BYTES + 77
    memory = empty_shared(size)
    if memory is None:
        pytest.skip("this system has none that are shared")
    parts = Path("/proc/self/smaps").read_text().split(f"{memory.ctypes.data:x}-")
    assert f"ShmemPmdMapped: {SHARED_BYTES >> 10:8} kB" in parts[1].split("VmFlags")[0]
    memory[-1] = 7
    assert memory[-1] == 7
    assert empty_shared(SHARED_BYTES - 1) is None


def test_pages_that_a_thread_waited_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    used, pages = SimpleNamespace(ru_inblock=5, ru_majflt=7), [1]
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(**vars(used)))
    for read, faults in ((30, 20), (20, 30), (0, 30), (30, 0), (0, 0)):
        with ReadChoice.count(pages):
            used.ru_inblock += read * PAGESIZE // 512
            used.ru_majflt += faults
    assert pages == [1, 30, 30, 30, 30, 0]


def test_a_read_from_memory_makes_the_next_ones_go_through_the_mapping() -> None:
    reads = ReadChoice()
    assert reads.from_disk
    reads.decide(10, 1000)
    assert reads.from_disk
    reads.decide(1, 1000)
    assert not reads.from_disk
    reads.decide(0, 0)
    assert not reads.from_disk
    reads.decide(2, 511)
    assert not reads.from_disk  # too few to tell
    reads.decide(0, 1)
    assert reads.from_disk


def test_whoever_had_to_wait_is_slower_to_trust_memory_again() -> None:
    reads, needed = ReadChoice(), []
    for _ in range(9):
        count = 0
        while reads.from_disk:
            reads.decide(0, 1000)
            count += 1
        needed.append(count)
        reads.decide(100, 1000)
    assert needed == [1, 2, 4, 8, 16, 32, 64, 64, 64]
