"""Memory of the CPU: blocks with one user at a time, and mappings that processes share."""

import gc
import os
import re
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.memory import POOL, MemoryFile, ReadChoice, buffers, collapse, map_shared
from graphfeed.ops.memory.shared_memory import HUGE_PAGE, SYSTEM, empty_shared
from graphfeed.ops.process import Limits
from tests.stand_ins.forked import in_child

LARGE = 1 << 17
NEW_SIZES = count(3 * LARGE, LARGE)
"""Sizes of blocks of which the process's pool has none."""


def test_tensors_and_arrays_are_as_asked_for() -> None:
    shapes: list[int | tuple[int, ...]] = [0, 7, (0,), (3, 0), (5, 3), (LARGE,), (LARGE, 2), (2, LARGE, 3), ()]
    for shape, dtype in product(shapes, (torch.bool, torch.bfloat16, torch.int32, torch.complex128)):
        wanted = torch.Size([shape] if isinstance(shape, int) else shape), dtype, True
        for tensor in (buffers.empty(shape, dtype), buffers.empty_long_lived(shape, dtype, buffers.CPU)):
            assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == wanted
    for size, kind in product((0, 10, LARGE), (np.uint8, np.int64)):
        array = POOL.empty((size, 3), kind)
        assert (array.shape, array.dtype, array.flags.c_contiguous) == ((size, 3), np.dtype(kind), True)


def cycle_of(tensor: torch.Tensor) -> list[Any]:
    cycle: list[Any] = [tensor]
    cycle.append(cycle)
    return cycle


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "slice": lambda tensor: tensor[5:9],
    "row": lambda tensor: tensor.view(-1, 8)[3],
    "dtype": lambda tensor: tensor.view(torch.int64),
    "slice of a slice": lambda tensor: tensor[10:][3:4],
    "detached": lambda tensor: tensor.detach(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "parts": lambda tensor: tensor.tensor_split(100),
    "tensor of the array": lambda tensor: torch.from_numpy(tensor.numpy()[3:5]),
    "memory": lambda tensor: tensor.numpy().data,
    "dlpack": lambda tensor: torch.utils.dlpack.from_dlpack(tensor),
    "dlpack of the array": lambda tensor: np.from_dlpack(tensor),
    "closure": lambda tensor: lambda: tensor,
    "cycle": cycle_of,
}


def test_a_block_is_not_used_again_while_anything_views_it_and_then_it_is() -> None:
    for name, view in VIEWS.items():
        size = next(NEW_SIZES)
        tensor = torch.from_numpy(POOL.empty(size, np.uint8))
        address = tensor.data_ptr()
        kept = view(tensor)
        del tensor
        gc.collect()
        assert POOL.empty(size, np.uint8).ctypes.data != address, name
        del kept
        gc.collect()
        found = [POOL.empty((size // 16, 2), np.float64), POOL.empty(size, np.uint8)]
        assert address in {array.ctypes.data for array in found}, name


def test_what_is_idle_is_bounded() -> None:
    pool = type(POOL)(idle_bytes=2 * LARGE)
    arrays = [pool.empty(LARGE, np.uint8) for _ in range(5)]
    addresses = {array.ctypes.data for array in arrays}
    arrays.clear()
    assert pool.idle == 2 * LARGE
    assert pool.empty(LARGE, np.uint8).ctypes.data in addresses


def test_threads_never_share_a_block() -> None:
    """Each writes its own number, keeps a part for a while, and checks that the number is still there."""

    def work(number: int) -> int:
        kept: list[Any] = []
        wrong = 0
        for turn in range(300):
            array = POOL.empty(LARGE + turn % 3 * (1 << 15), np.uint8)
            array.fill(number)
            kept.append(array[turn : turn + 1000])
            if len(kept) > 4:
                wrong += int((kept.pop(0) != number).sum())
        return wrong + sum(int((part != number).sum()) for part in kept)

    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(work, range(8))) == [0] * 8


def test_threads_never_share_the_map_of_a_graph_s_nodes() -> None:
    given = [(torch.arange(5) * step, torch.arange(0, 2000, step)) for step in range(1, 9)]

    def number_nodes(own: tuple[torch.Tensor, torch.Tensor]) -> list[list[int]]:
        return [part.tolist() for part in ops.compact(*own, num_nodes=5000)]

    expected = list(map(number_nodes, given))
    with ThreadPoolExecutor(8) as executor:
        assert all(list(executor.map(number_nodes, given)) == expected for _ in range(30))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory a process has")
def test_a_thousand_mini_batches_need_no_more_memory_than_a_hundred() -> None:
    """They have 500 KB each."""
    graph = gf.from_coo(torch.randint(5000, (2, 100_000)), 5000)
    items = gf.ItemSampler(gf.ItemSet(torch.arange(4000).repeat(50), names="seeds"), batch_size=200)
    found = [resident() for number, _ in enumerate(items.sample_neighbor(graph, [10, 10])) if number in (100, 999)]
    assert found[1] - found[0] < 64 << 20


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
    size = Limits().shared_bytes + 77
    memory = empty_shared(size)
    if memory is None:
        pytest.skip("this system has none that are shared")
    parts = Path("/proc/self/smaps").read_text().split(f"{memory.ctypes.data:x}-")
    assert f"ShmemPmdMapped: {Limits().shared_bytes >> 10:8} kB" in parts[1].split("VmFlags")[0]
    memory[-1] = 7
    assert memory[-1] == 7
    assert empty_shared(Limits().shared_bytes - 1) is None

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
