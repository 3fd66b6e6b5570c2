import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from itertools import permutations
from mmap import PAGESIZE
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops import pinned
from graphfeed.ops.pinned import READ_ONLY
from graphfeed.storage.memory.shared import SharedBlock
from tests.ops.locked_memory import LockedMemory


@pytest.fixture
def runtime() -> Iterator[LockedMemory]:
    with LockedMemory().installed() as memory:
        yield memory


class Owner:
    """Holds tensors."""


def test_memory_is_locked_as_long_as_its_owner_lives(runtime: LockedMemory) -> None:
    tensor, owner, other = torch.zeros(10), Owner(), Owner()
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
    tensor = torch.zeros(10)
    memory = weakref.ref(tensor)
    ops.pin_in_place(tensor, owner)
    del tensor
    gc.collect()
    assert memory() is not None
    del owner
    gc.collect()
    assert memory() is None


@pytest.mark.slow
def test_memory_is_released_at_exit() -> None:
    program = (
        "import torch\n"
        "from graphfeed import ops\n"
        "class Runtime:\n"
        "    def cudaHostRegister(self, *_): return 0\n"
        "    def cudaHostUnregister(self, _): print('released')\n"
        "class Owner: pass\n"
        "torch.cuda.is_available = lambda: True\n"
        "torch.cuda.cudart = Runtime\n"
        "owner = Owner()\n"
        "ops.pin_in_place(torch.zeros(3), owner)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "released\n"


def test_nothing_is_locked_for_no_values(runtime: LockedMemory) -> None:
    ops.pin_in_place(torch.zeros(0), Owner())
    assert runtime.locked == {}


@pytest.mark.slow
def test_neighbours_on_one_page_are_locked_whole_and_released_apart(runtime: LockedMemory) -> None:
    memory = torch.zeros(5 * PAGESIZE, dtype=torch.uint8)
    first = -memory.data_ptr() % PAGESIZE
    parts = [memory[first + low : first + high] for low, high in ((100, 5000), (5000, 9000), (9000, 16000), (200, 300))]
    for order in permutations(range(4)):
        owners = {place: Owner() for place in order}
        for place in order:
            ops.pin_in_place(parts[place], owners[place])
        assert all(runtime.holds_all(part) for part in parts)
        for place in order:
            del owners[place]
            gc.collect()
            assert all(runtime.holds_all(parts[other]) for other in owners)
        assert runtime.locked == {}


def test_memory_that_torch_has_pinned_stays_as_it_is(runtime: LockedMemory) -> None:
    tensor = torch.zeros(10)
    runtime.locked[tensor.data_ptr()] = 40
    owner = Owner()
    ops.pin_in_place(tensor, owner)
    del owner
    gc.collect()
    assert runtime.locked == {tensor.data_ptr(): 40}


def test_parts_of_one_storage_are_locked_apart(runtime: LockedMemory) -> None:
    """Of which torch answers all alike: by the first byte of the storage."""
    memory = torch.zeros(8 * PAGESIZE, dtype=torch.uint8)
    first = -memory.data_ptr() % PAGESIZE
    front, back = (memory[first + place * PAGESIZE :][: 3 * PAGESIZE] for place in (0, 3))
    for mine, other in ((front, back), (back, front)):
        owner = Owner()
        ops.pin_in_place(mine, owner)
        assert pinned.is_page_locked(mine)
        assert not pinned.is_page_locked(other)
        assert not pinned.is_page_locked(memory)
        ops.pin_in_place(other, owner)
        assert runtime.holds_all(other)
        assert pinned.is_page_locked(memory[first : first + 6 * PAGESIZE])
        del owner
        gc.collect()
        assert runtime.locked == {}
        assert not pinned.is_page_locked(mine)


def test_a_tensor_with_gaps_is_locked_if_its_last_value_is(runtime: LockedMemory) -> None:
    memory = torch.zeros(6 * PAGESIZE, dtype=torch.uint8)
    first = -memory.data_ptr() % PAGESIZE
    owner = Owner()
    ops.pin_in_place(memory[first : first + 2 * PAGESIZE], owner)
    assert pinned.is_page_locked(memory[first : first + 2 * PAGESIZE : 100])
    assert not pinned.is_page_locked(memory[first : first + 2 * PAGESIZE + 1 : PAGESIZE])
    assert not pinned.is_page_locked(memory.to("meta"))
    assert not pinned.is_page_locked(memory[:0])
    del owner


def test_memory_for_reading_only_is_locked_for_reading(runtime: LockedMemory) -> None:
    runtime.status[0] = 1
    tensor, owner = torch.zeros(10), Owner()
    ops.pin_in_place(tensor, owner)
    assert runtime.holds_all(tensor)
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_what_cuda_refuses_is_named_and_nothing_stays_locked(runtime: LockedMemory) -> None:
    memory = torch.zeros(3 * PAGESIZE, dtype=torch.uint8)
    middle, owner = memory[PAGESIZE + 10 : PAGESIZE + 20], Owner()
    ops.pin_in_place(middle, owner)
    runtime.status = {0: 2, READ_ONLY: 2}
    with pytest.raises(RuntimeError, match=r"CUDA can't page-lock \d+ bytes \(cudaHostRegister returned 2\); free mem"):
        ops.pin_in_place(memory, Owner())
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_what_dies_while_others_are_locked_is_released_behind_them(runtime: LockedMemory) -> None:
    owner, other = Owner(), Owner()
    ops.pin_in_place(torch.zeros(10), owner)
    with pinned.LOCK:
        del owner
        gc.collect()
        assert runtime.locked
    ops.pin_in_place(torch.zeros(10 * PAGESIZE), other)
    del other
    gc.collect()
    assert runtime.locked == {}


@pytest.mark.parametrize("tensor", [torch.zeros(4, 4)[:, 1], torch.zeros(4, device="meta")])
def test_other_memory_is_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"only contiguous tensors on the CPU .* is on (cpu|meta) with strides"):
        ops.pin_in_place(tensor, Owner())


def test_without_a_device_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="pin_in_place needs a CUDA device"):
        ops.pin_in_place(torch.zeros(4), Owner())


def test_a_limit_of_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LIMIT", SimpleNamespace(threads=5))
    assert ops.max_uva_threads() == 5
    ops.set_max_uva_threads(7)
    assert ops.max_uva_threads() == 7
    with pytest.raises(ValueError, match="max_uva_threads must be 1 or more, but is 0"):
        ops.set_max_uva_threads(0)


@pytest.mark.gpu
def test_locked_memory_is_pinned_and_released() -> None:
    tensor, owner = torch.zeros(1 << 20), Owner()
    ops.pin_in_place(tensor, owner)
    assert tensor.is_pinned()
    del owner
    gc.collect()
    assert not tensor.is_pinned()


@pytest.mark.gpu
def test_parts_of_one_mapping_are_locked_and_read_by_a_kernel() -> None:
    block = SharedBlock.create([torch.arange(1000), torch.arange(3000.0), torch.arange(7)])
    owners = [Owner() for _ in block.tensors]
    for tensor, owner in zip(block.tensors, owners, strict=True):
        ops.pin_in_place(tensor, owner)
    for tensor in block.tensors:
        ids = torch.arange(len(tensor), device="cuda")
        assert torch.equal(ops.gather_rows(tensor[:, None], ids).cpu(), tensor[:, None])
    owners.clear()
    gc.collect()
    assert not any(tensor.is_pinned() for tensor in block.tensors)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_mapped_from_a_file_is_locked_or_refused_with_what_to_do(tmp_path: Path, mode: Any) -> None:
    """Whether a file can be locked depends on its file system, and for mode "r" on the device."""
    np.save(tmp_path / "rows.npy", np.arange(100_000.0))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of arrays that can't be written
        tensor, owner = torch.from_numpy(mapped), Owner()
    refused = ""
    try:
        ops.pin_in_place(tensor, owner)
    except RuntimeError as error:
        refused = str(error)
    if refused:
        assert "copy what is mapped from a file with .clone()" in refused
        assert torch.ones(1, device="cuda").item() == 1  # the failure is not found by what comes next
    else:
        rows = ops.gather_rows(tensor[:, None], torch.tensor([0, 99_999], device="cuda"))
        assert rows.tolist() == [[0.0], [99_999.0]]
