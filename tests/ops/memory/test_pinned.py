"""Page-locked memory: which tensors are locked in place, for how long, and which are copied."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from itertools import permutations, product
from mmap import PAGESIZE
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.memory import SharedMemory, buffers, empty_locked, pinned
from graphfeed.ops.memory.pinned import READ_ONLY
from graphfeed.storage.memory.shared import SharedBlock
from tests.forked import in_child
from tests.ops import emulated_runtime
from tests.ops.locked_memory import LockedMemory


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
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_memory_is_kept_until_it_is_released(runtime: LockedMemory) -> None:
    owner = Owner()
    tensor = alone(1)
    memory = weakref.ref(tensor)
    ops.pin_in_place(tensor, owner)
    del tensor
    gc.collect()
    assert memory() is not None
    del owner
    gc.collect()
    assert memory() is None


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
        "owner = Owner()\n"
        "ops.pin_in_place(empty_long_lived(1 << 25, torch.uint8, CPU), owner)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "released\n"


def test_nothing_is_locked_for_no_values(runtime: LockedMemory) -> None:
    ops.pin_in_place(torch.zeros(0), Owner())
    assert runtime.locked == {}


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


def test_memory_that_torch_has_pinned_stays_as_it_is(runtime: LockedMemory) -> None:
    tensor = torch.zeros(10)
    runtime.locked[tensor.data_ptr()] = 40
    owner = Owner()
    ops.pin_in_place(tensor, owner)
    del owner
    gc.collect()
    assert runtime.locked == {tensor.data_ptr(): 40}


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


def test_a_tensor_with_gaps_is_locked_where_its_mapping_is_and_otherwise_copied(runtime: LockedMemory) -> None:
    memory, owner = alone(6), Owner()
    ops.pin_in_place(memory, owner)
    assert pinned.is_page_locked(memory[::100])
    assert not pinned.is_page_locked(memory.to("meta"))
    (copy,) = pinned.page_lock([memory[::100]], owner)
    assert copy.is_contiguous()
    assert runtime.holds_all(copy)


def test_torch_is_not_asked_before_it_uses_cuda(runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take memory on a GPU in each worker process."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor, device=None: pytest.fail("torch was asked"))
    assert not pinned.is_page_locked(torch.zeros(3))
    ops.cumulate_weights(torch.tensor([0, 2]), torch.ones(2))


def test_a_device_is_waited_for_before_memory_is_unlocked(
    runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlock, known, waited = runtime.cudaHostUnregister, [], []

    def unlock_and_tell(address: int) -> int:
        known.append(pinned.is_locked_in_place(tensor))
        return unlock(address)

    def memory_of(index: int) -> int:
        waited.append(f"asks {index}")
        if index == 1:
            raise RuntimeError("this device failed")
        return 1

    monkeypatch.setattr(runtime, "cudaHostUnregister", unlock_and_tell)
    with emulated_runtime.installed() as order, patch.object(torch.cuda, "memory_reserved", memory_of):
        tensor, owner = alone(1), Owner()
        ops.pin_in_place(tensor, owner)
        order.use(torch.cuda.current_stream(), "a kernel", reads=[], writes=[], bus=[tensor])
        del owner
        gc.collect()
        assert order.faults == []
    assert runtime.locked == {}
    assert known == [False]  # no other thread takes it for locked while it no longer is
    assert waited == ["asks 0", "asks 1"]


def test_devices_are_waited_for_also_if_the_allocator_tells_nothing(
    runtime: LockedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "memory_reserved", Mock(side_effect=NotImplementedError))  # as with RMM's
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(pinned, "READERS", {2})
    owner = Owner()
    ops.pin_in_place(alone(1), owner)
    del owner
    gc.collect()
    assert waited == [1, 2]
    assert runtime.locked == {}


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


def test_only_what_is_read_where_it_lies_is_locked(runtime: LockedMemory) -> None:
    owner, gaps, by_torch = Owner(), alone(2).view(-1, 2)[:, 0], alone(1)
    runtime.locked[by_torch.data_ptr()] = PAGESIZE
    copied, same = pinned.page_lock([gaps, by_torch], owner)
    assert copied.is_contiguous()
    assert same is by_torch
    assert runtime.locked == {by_torch.data_ptr(): PAGESIZE, copied.data_ptr(): PAGESIZE}
    del owner, copied
    gc.collect()
    assert runtime.locked == {by_torch.data_ptr(): PAGESIZE}


def test_memory_for_reading_only_is_locked_for_reading(runtime: LockedMemory) -> None:
    runtime.status[0] = 1
    tensor, owner = alone(1), Owner()
    with patch.object(pinned, "forget_error") as forget:  # or torch's next launch would raise it
        ops.pin_in_place(tensor, owner)
    assert runtime.holds_all(tensor)
    forget.assert_called_once()
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_what_cuda_refuses_is_named_and_nothing_stays_locked(runtime: LockedMemory) -> None:
    owner = Owner()
    ops.pin_in_place(alone(1), owner)
    runtime.status = {0: 2, READ_ONLY: 2}
    refused = pytest.raises(RuntimeError, match=r"CUDA can't page-lock \d+ bytes \(cudaHostRegister returned 2\); free")
    with patch.object(pinned, "forget_error") as forget, refused:
        ops.pin_in_place(alone(3), Owner())
    forget.assert_called_once()
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_what_dies_while_others_are_locked_is_released_behind_them(runtime: LockedMemory) -> None:
    owner, other = Owner(), Owner()
    ops.pin_in_place(alone(1), owner)
    with pinned.LOCKED.lock:
        del owner
        gc.collect()
        assert runtime.locked
    ops.pin_in_place(ten := alone(10), other)
    assert list(runtime.locked) == [ten.data_ptr()]
    del other
    gc.collect()
    assert runtime.locked == {}


def test_a_limit_of_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LIMIT", SimpleNamespace(threads=5))
    assert ops.max_uva_threads() == 5
    ops.set_max_uva_threads(7)
    assert ops.max_uva_threads() == 7


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


def test_a_file_that_is_written_to_is_locked_for_reading_first_and_other_memory_for_both(
    monkeypatch: pytest.MonkeyPatch, disk_path: Path
) -> None:
    """Memory that was locked for writing would be written to the disk again when it is unlocked."""
    runtime = LockedMemory()
    np.save(disk_path / "rows.npy", np.arange(5000.0))
    flags: list[int] = []
    modes: tuple[Any, ...] = ("r+", "c")  # what is written to a private mapping goes to other pages, which CUDA makes

    def register(start: int, size: int, flag: int) -> int:
        flags.append(flag)
        return LockedMemory.cudaHostRegister(runtime, start, size, flag)

    monkeypatch.setattr(runtime, "cudaHostRegister", register)
    owner = Owner()
    with runtime.installed():
        tensors = [
            *(as_tensor("rows", np.load(disk_path / "rows.npy", mmap_mode=mode)) for mode in modes),
            *SharedBlock.create([torch.ones(9999)]).tensors,
        ]
        pinned.page_lock(tensors, owner)
    assert flags == [READ_ONLY, 0, 0]


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
