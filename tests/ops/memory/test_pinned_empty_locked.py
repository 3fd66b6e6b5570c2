"""Page-locked memory of graphfeed's own."""

import gc
from mmap import PAGESIZE

import pytest
import torch

from graphfeed.ops.memory import empty_locked
from tests.ops.locked_memory import LockedMemory


@pytest.mark.parametrize("shape", [(), (3,), (5, 7, 11), (0, 4), (4, 0)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.complex128])
def test_own_locked_memory_takes_whole_pages_and_comes_back(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    with LockedMemory().installed() as runtime:
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
