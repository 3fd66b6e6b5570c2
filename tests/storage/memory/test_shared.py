import gc
import os

import pytest
import torch

from graphfeed.ops.memory import buffers
from graphfeed.storage.memory.shared import SharedBlock, find_handle
from tests.forked import in_child

leaves_nothing = pytest.mark.usefixtures("no_leaks")
COUNT = 100_000
SIZE = 5 << 20


def long_lived(*shape: int) -> torch.Tensor:
    """Return numbers in memory for what lives long."""
    made = buffers.empty_long_lived(shape, torch.int64, buffers.CPU)
    return made.copy_(torch.arange(made.numel()).reshape(shape))


def test_a_block_without_tensors() -> None:
    block = SharedBlock.create([])
    assert SharedBlock.open(block.handle).tensors == []


@leaves_nothing
def test_a_block_has_copies() -> None:
    tensor, other = torch.arange(COUNT), torch.arange(6.0).reshape(2, 3).T
    block = SharedBlock.create([tensor, other, torch.empty(0, 3)])
    tensor[0] = -1
    again = SharedBlock.open(block.handle)
    assert torch.equal(again.tensors[0], torch.arange(COUNT))
    assert torch.equal(again.tensors[1], other)
    assert again.tensors[2].shape == (0, 3)
    assert again.memory.ctypes.data == block.memory.ctypes.data, "a process maps it once"


@leaves_nothing
def test_memory_is_mapped_as_long_as_an_array_lies_there() -> None:
    tensor = SharedBlock.create([torch.arange(COUNT)]).tensors[0][7:]
    handle = find_handle(tensor)
    assert handle is not None
    assert os.path.exists(handle.path)
    again = SharedBlock.open(handle).tensors[0]
    assert torch.equal(again, tensor)
    del tensor, again
    gc.collect()
    assert not os.path.exists(handle.path)
    with pytest.raises(FileNotFoundError, match="can't be opened"):
        SharedBlock.open(handle)


@pytest.mark.usefixtures("small_is_shared", "no_leaks")
def test_what_lives_long_is_found_from_its_first_value_to_its_last() -> None:
    made, private = long_lived(10, 4), torch.arange(3)
    for tensor in (made, made[3:7], made[9:], made.view(torch.float64), made[0, 1:2]):
        handle = find_handle(tensor)
        assert handle is not None
        (again,) = SharedBlock.open(handle).tensors
        assert again.dtype == tensor.dtype
        assert torch.equal(again, tensor)
        assert again.data_ptr() == tensor.data_ptr()
    for tensor in (made[:, :2], made[5:5], made.to(torch.complex64).conj(), private):
        assert find_handle(tensor) is None


@pytest.mark.usefixtures("small_is_shared")
def test_a_forked_process_sends_its_own_descriptor_and_writes_what_all_see() -> None:
    made = long_lived(10)
    handle = find_handle(made)
    assert handle is not None

    def write() -> str:
        made[3] = 30
        own = find_handle(made)
        assert own is not None
        return own.path

    path = in_child(write)
    assert path != handle.path
    assert path.split("/")[3:] == handle.path.split("/")[3:]
    assert made[3] == 30
