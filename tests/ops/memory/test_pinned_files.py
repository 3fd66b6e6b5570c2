"""Page-locked memory that is mapped from files, or read by a GPU."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.memory import pinned
from graphfeed.ops.memory.pinned import READ_ONLY
from graphfeed.storage.memory.shared import SharedBlock
from tests.ops.locked_memory import LockedMemory


class Owner:
    """Holds tensors."""


def test_a_file_that_is_written_to_is_locked_for_reading_first_and_other_memory_for_both(
    monkeypatch: pytest.MonkeyPatch, disk_path: Path
) -> None:
    """What was locked for writing is written to the disk anew when it is unlocked."""
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
        assert "copy what is mapped from a file with .clone()" in refused
        assert torch.ones(1, device="cuda").item() == 1  # the failure is not found by what comes next
    else:
        rows = ops.gather_rows(tensor[:, None], torch.tensor([0, 99_999], device="cuda"))
        assert rows.tolist() == [[0.0], [99_999.0]]


@pytest.mark.gpu
def test_locked_memory_is_pinned_and_released() -> None:
    (tensor,), owner = SharedBlock.create([torch.zeros(1 << 20)]).tensors, Owner()
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
    del owner, owners
    gc.collect()
    assert not any(tensor.is_pinned() for tensor in block.tensors)
