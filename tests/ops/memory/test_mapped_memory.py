import gc
import os
import re
import resource
from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest

from graphfeed.ops.memory import ReadChoice
from graphfeed.ops.memory.shared_memory import (
    HUGE_PAGE,
    SHARED_BYTES,
    SYSTEM,
    MemoryFile,
    collapse,
    empty_shared,
    map_shared,
)  # fmt: skip
from tests.forked import in_child

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
def test_all_mappings_see_what_one_writes_and_go_with_the_last_view_of_them(descriptor: int, tmp_path: Path) -> None:
    for size in SIZES:
        one, other = map_shared(descriptor, size), map_shared(descriptor, size)
        one[:] = np.arange(size, dtype=np.uint64).astype(np.uint8)
        assert one.size == size
        assert size <= HUGE_PAGE or one.ctypes.data % HUGE_PAGE == 0
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
    (tmp_path / "file").write_bytes(b"1")
    with (tmp_path / "file").open("rb") as file, pytest.raises(OSError, match="can't be mapped"):
        map_shared(file.fileno(), HUGE_PAGE)


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
    assert not collapse(np.zeros(100, dtype=np.uint8))
    assert not collapse(np.zeros(3 * HUGE_PAGE, dtype=np.uint8)[1:][: 2 * HUGE_PAGE])


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

    def have_no_descriptor() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        return empty_shared(size)

    assert in_child(have_no_descriptor) == "None"


def test_the_mapping_is_read_after_reads_from_memory_and_slower_trusted_after_each_wait() -> None:
    reads, needed = ReadChoice(), []
    for _ in range(9):
        reads.decide(2, 511)  # too few to tell
        count = 0
        while reads.from_disk:
            reads.decide(0, 1000)
            count += 1
        needed.append(count)
        reads.decide(100, 1000)
    assert needed == [1, 2, 4, 8, 16, 32, 64, 64, 64]
