"""Page-locked memory: which tensors are locked in place, for how long, and which are copied."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from itertools import permutations, product
from mmap import PAGESIZE
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.memory import SharedMemory, buffers, empty_locked, pinned
from graphfeed.ops.memory.pinned import READ_ONLY
from graphfeed.storage.memory import SharedBlock
from tests.stand_ins import emulated_runtime
from tests.stand_ins.forked import in_child
from tests.stand_ins.locked_memory import LockedMemory


@pytest.fixture
def runtime() -> Iterator[LockedMemory]:
    with LockedMemory().installed() as memory:
        yield memory


class Owner:
    """Holds tensors."""


def alone(pages: int) -> torch.Tensor:
    """Return bytes on pages that hold nothing else."""
    return torch.from_numpy(np.asarray(SharedMemory.create(pages * PAGESIZE)))


def test_memory_is_locked_as_long_as_its_owner_lives(runtime: LockedMemory) -> None:
    tensor, owner, other = alone(1), Owner(), Owner()
    ops.pin_in_place(tensor, owner)
    assert runtime.holds_all(tensor)
    ops.pin_in_place(tensor, other)
    del other
    gc.collect()
    assert runtime.locked
    memory = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert memory() is not None
    del owner
    gc.collect()
    assert (runtime.locked, memory()) == ({}, None)
    ops.pin_in_place(torch.zeros(0), Owner())
    assert runtime.locked == {}


@pytest.mark.slow
@pytest.mark.thorough
def test_memory_is_released_at_exit() -> None:
    program = (
        "from graphfeed.ops.memory.buffers import CPU, empty_long_lived\n"
        "import torch\n"
        "from graphfeed import ops\n"
        "class Runtime:\n"
        "    def cudaHostRegister(self, *_): return 0\n"
        "    def cudaHostUnregister(self, _): print('released')\n"
        "class Owner: pass\n"
        "torch.cuda.is_available = torch.cuda.is_initialized = lambda: True\n"
        "torch.cuda.cudart = Runtime\n"
        "torch.cuda.is_current_stream_capturing = lambda: False\n"
        "owner = Owner()\n"
        "ops.pin_in_place(empty_long_lived(1 << 25, torch.uint8, CPU), owner)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "released\n"


def test_a_shared_block_is_locked_whole_and_once(runtime: LockedMemory) -> None:
    block = SharedBlock.create([torch.arange(1000), torch.arange(3000.0), torch.arange(7)])
    for order in permutations(range(3)):
        owners = {place: Owner() for place in order}
        for place in order:
            ops.pin_in_place(block.tensors[place], owners[place])
            assert len(runtime.locked) == 1
            assert all(runtime.holds_all(part) for part in block.tensors)
        for place in order:
            assert len(runtime.locked) == 1
            del owners[place]
            gc.collect()
        assert runtime.locked == {}


@pytest.mark.parametrize("make", [torch.zeros, np.zeros])
def test_what_shares_pages_with_others_is_copied(runtime: LockedMemory, make: Any) -> None:
    tensors = [torch.as_tensor(make(3 * PAGESIZE // 8)) for _ in range(20)]
    owner = Owner()
    with pytest.raises(ValueError, match=r"share its first or last page with other memory, .* with \.pin_memory\(\)"):
        ops.pin_in_place(tensors[5], owner)
    locked = pinned.page_lock(tensors[::2], owner)
    assert all(runtime.holds_all(tensor) for tensor in locked)
    for tensor in (*tensors, *locked):
        runtime.check_copy(tensor)


@pytest.mark.usefixtures("small_is_shared")
def test_what_has_its_pages_for_itself_is_locked_in_place(runtime: LockedMemory, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(5000.0))
    block = SharedBlock.create([torch.arange(3000.0)])
    mapped = as_tensor("rows", np.load(tmp_path / "rows.npy", mmap_mode="c"))
    given = [alone(3), block.tensors[0], mapped, buffers.empty_long_lived(1 << 20, torch.uint8, buffers.CPU)]
    owner = Owner()
    locked = pinned.page_lock([*given, given[3][100:200]], owner)
    assert [mine is theirs for mine, theirs in zip(locked, given, strict=False)] == [True] * 4
    assert len(runtime.locked) == 4  # the last tensor is a part of one before
    assert all(runtime.holds_all(tensor) for tensor in locked)
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_parts_of_one_storage_are_locked_together(runtime: LockedMemory) -> None:
    memory = alone(8)
    front, back = memory[: 3 * PAGESIZE + 5], memory[3 * PAGESIZE + 5 :]
    for mine, other in ((front, back), (back, front)):
        owner = Owner()
        ops.pin_in_place(mine, owner)
        assert pinned.is_page_locked(other)
        assert pinned.is_page_locked(memory)
        runtime.check_copy(other)
        del owner
        gc.collect()
        assert runtime.locked == {}
        assert not pinned.is_page_locked(mine)


def test_memory_that_torch_has_pinned_stays_and_what_has_gaps_is_locked_in_its_mapping_or_copied(
    runtime: LockedMemory,
) -> None:
    owner, by_torch, whole = Owner(), alone(1), alone(6)
    runtime.locked[by_torch.data_ptr()] = PAGESIZE
    ops.pin_in_place(by_torch, owner)
    copied, same = pinned.page_lock([whole[::100], by_torch], owner)
    assert copied.is_contiguous()
    assert same is by_torch
    assert runtime.locked == {by_torch.data_ptr(): PAGESIZE, copied.data_ptr(): PAGESIZE}
    ops.pin_in_place(whole, owner)
    assert pinned.is_page_locked(whole[::100])
    assert not pinned.is_page_locked(whole.to("meta"))
    del owner, copied
    gc.collect()
    assert runtime.locked == {by_torch.data_ptr(): PAGESIZE}


@pytest.mark.parametrize("answers", [[1, RuntimeError("this device failed")], [NotImplementedError()] * 2])
def test_a_device_is_waited_for_before_memory_is_unlocked(
    runtime: LockedMemory, answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another device fails, or the allocator, such as RMM's, says nothing about its memory."""
    owner = Owner()
    with emulated_runtime.installed() as order:
        monkeypatch.setattr(torch.cuda, "memory_reserved", Mock(side_effect=answers))
        ops.pin_in_place(tensor := alone(1), owner)
        order.use(torch.cuda.current_stream(), "a kernel", reads=[], writes=[], bus=[tensor])
        del owner
        gc.collect()
        assert order.faults == []
    assert runtime.locked == {}


def test_torch_is_not_asked_before_it_uses_cuda(runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take memory on a GPU in each worker process."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor, device=None: pytest.fail("torch was asked"))
    assert not pinned.is_page_locked(torch.zeros(3))
    ops.cumulate_weights(torch.tensor([0, 2]), torch.ones(2))


def test_nothing_is_unlocked_while_a_graph_of_cuda_is_captured(
    runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "is_capturing", lambda: True)
    owner = Owner()
    ops.pin_in_place(alone(1), owner)
    del owner
    gc.collect()
    assert len(runtime.locked) == 1
    monkeypatch.setattr(pinned, "is_capturing", lambda: False)
    pinned.unlock_unused()
    assert runtime.locked == {}


def test_in_a_forked_process_nothing_is_locked(runtime: LockedMemory) -> None:
    owners, dying = [Owner()], [Owner()]
    (locked,) = pinned.page_lock([alone(1)], owners[0])
    pinned.page_lock([alone(1)], dying[0])

    def look() -> tuple[bool, int]:
        with pinned.LOCKED.lock:
            owners.clear()
            gc.collect()
        pinned.unlock_unused()
        return pinned.is_locked_in_place(locked), len(runtime.locked)

    with pinned.LOCKED.lock:
        dying.clear()  # whoever has the lock unlocks what it held
        gc.collect()
        assert in_child(look, 10) == "(False, 2)"
    assert pinned.is_locked_in_place(locked)
    pinned.unlock_unused()
    assert len(runtime.locked) == 1


def test_memory_is_locked_for_reading_where_cuda_refuses_more_and_a_refusal_is_named(runtime: LockedMemory) -> None:
    runtime.status[0] = 1
    tensor, owner = alone(1), Owner()
    ops.pin_in_place(tensor, owner)
    assert runtime.holds_all(tensor)
    runtime.status[READ_ONLY] = 2
    with pytest.raises(RuntimeError, match=r"CUDA can't page-lock \d+ bytes \(cudaHostRegister returned 1\); free"):
        ops.pin_in_place(alone(3), Owner())
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_a_file_that_is_written_to_is_locked_for_reading_first_and_other_memory_for_both(
    runtime: LockedMemory, disk_path: Path
) -> None:
    """Memory that was locked for writing would be written to the disk again when it is unlocked."""
    np.save(disk_path / "rows.npy", np.arange(5000.0))
    modes: tuple[Any, ...] = ("r+", "c")  # what is written to a private mapping goes to other pages, which CUDA makes
    files = [as_tensor("rows", np.load(disk_path / "rows.npy", mmap_mode=mode)) for mode in modes]
    pinned.page_lock([*files, alone(1)], Owner())
    assert runtime.flags == [READ_ONLY, 0, 0]


def test_own_locked_memory_takes_whole_pages_and_comes_back(runtime: LockedMemory) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (5, 7, 11), (0, 4), (4, 0)]
    for shape, dtype in product(shapes, (torch.bool, torch.float16, torch.complex128)):
        tensor = empty_locked(shape, dtype)
        assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (shape, dtype, True)
        assert runtime.holds_all(tensor)
        assert sum(runtime.locked.values()) == -(-tensor.nbytes // PAGESIZE) * PAGESIZE
        view = tensor.reshape(-1)[1:]
        del tensor
        gc.collect()
        assert runtime.holds_all(view)
        del view
        gc.collect()
        assert runtime.locked == {}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_mapped_from_a_file_is_locked_or_refused_with_what_to_do(tmp_path: Path, mode: Any) -> None:
    """Whether a file can be locked depends on its file system, and for mode "r" on the device."""
    np.save(tmp_path / "rows.npy", np.arange(100_000.0))
    tensor, owner = as_tensor("rows", np.load(tmp_path / "rows.npy", mmap_mode=mode)), Owner()
    refused = ""
    try:
        ops.pin_in_place(tensor, owner)
    except RuntimeError as error:
        refused = str(error)
    if refused:
        assert "copy memory-mapped tensors with .clone()" in refused
        assert torch.ones(1, device="cuda").item() == 1  # the failure is not found by what comes next
    else:
        rows = ops.gather_rows(tensor[:, None], torch.tensor([0, 99_999], device="cuda"))
        assert rows.tolist() == [[0.0], [99_999.0]]


@pytest.mark.gpu
def test_parts_of_one_mapping_are_locked_read_by_a_kernel_and_released() -> None:
    block = SharedBlock.create([torch.arange(1000), torch.arange(3000.0), torch.arange(7)])
    owners = [Owner() for _ in block.tensors]
    for tensor, owner in zip(block.tensors, owners, strict=True):
        ops.pin_in_place(tensor, owner)
    for tensor in block.tensors:
        assert tensor.is_pinned()
        ids = torch.arange(len(tensor), device="cuda")
        assert torch.equal(ops.gather_rows(tensor[:, None], ids).cpu(), tensor[:, None])
    del owner, owners
    gc.collect()
    assert not any(tensor.is_pinned() for tensor in block.tensors)


def test_memory_that_a_gpu_cant_read_where_it_is_is_not_locked(
    runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def answer(out: Any, attribute: int, index: int) -> int:
        asked.append((attribute, index))
        out._obj.value = index == 0
        return 0

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("ctypes.CDLL", lambda _: Mock(cuDeviceGetAttribute=answer))
    ops.pin_in_place(alone(1), owner := Owner())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match="can't read page-locked memory at the CPU's addresses"):
        ops.pin_in_place(alone(1), owner)
    assert asked == [(91, 0)] * 2 + [(91, 1)]
    assert len(runtime.locked) == 1


def test_torch_notices_the_copies_of_parts_of_pinned_results(runtime: LockedMemory) -> None:
    seeds, neighbors = torch.arange(9000), torch.arange(3000, 12000)
    with buffers.pinning():
        array = buffers.empty_array(9000, np.int64)
        rows = ops.compact(seeds, neighbors, num_nodes=12000).rows
    # No context is left: the last loader has ended in the meantime.
    for whole in (buffers.pinned_tensor(array), rows):
        part = buffers.as_tensor(whole[5000:])
        assert part.is_pinned()
        runtime.note_copy(part, "side")
        assert [block.streams for block in runtime.blocks.values() if block.streams] == [{"side"}]
        for block in runtime.blocks.values():
            block.streams.clear()
    assert rows.equal(torch.arange(12000))


def test_results_that_are_larger_than_mini_batches_are_not_pinned(
    runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers.POOL, "idle_bytes", 1 << 16)
    with buffers.pinning():
        found = [buffers.empty(size, torch.int64).is_pinned() for size in (1 << 11, 1 << 12, 1 << 13, (1 << 13) + 1)]
    assert found == [False, True, True, False]


def test_a_forked_process_pins_no_results(runtime: LockedMemory) -> None:
    def pins() -> bool:
        return buffers.empty(1 << 13, torch.int64).is_pinned()

    with buffers.pinning():
        assert (pins(), in_child(pins)) == (True, "False")
    assert not pins()
