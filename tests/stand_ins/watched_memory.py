"""What `watched_memory.h` is told of the memory that a kernel may touch, and which of it somebody has written."""

import ctypes
from typing import Any

import numpy as np
import torch

from tests.stand_ins.strict_cupy import Launched


def held(tensor: Any) -> torch.Tensor:
    """Return the tensor of the CPU that stands behind a pretended one."""
    inner: torch.Tensor = tensor.held
    return inner


def note_empty(tensor: Any) -> None:
    """Record that a tensor's memory is unwritten."""
    storage: Any = held(tensor).untyped_storage()
    storage.written = np.zeros(storage.nbytes(), dtype=np.uint8)


class Range(ctypes.Structure):
    """Memory that a kernel may touch, as `watched_memory.h` has it."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "width", "writable", "written")]


def watch(library: ctypes.CDLL, given: Launched, passed: Any) -> None:
    """Tell a library what its next kernel may touch."""
    parts = []
    for parameter, tensor in zip(given.parameters, given.tensors, strict=True):
        if tensor is not None:
            first, written = tensor.data_ptr(), 0
            if not tensor.is_cpu and (known := written_bytes(tensor)) is not None:
                written = known.ctypes.data + first - held(tensor).untyped_storage().data_ptr()
            parts.append(Range(first, first + tensor.nbytes, tensor.itemsize, not parameter.const, written))
    address = ctypes.addressof(passed)
    parts.append(Range(address, address + ctypes.sizeof(passed), 8, False, 0))
    library.watch((Range * len(parts))(*parts), len(parts))


def written_bytes(tensor: Any) -> Any:
    """Return for each byte of a storage whether somebody wrote it; None for one that was made with values."""
    return getattr(held(tensor).untyped_storage(), "written", None)


def note_written(func: Any, reads: list[Any], writes: list[Any]) -> None:
    """Record the bytes that an operation of torch writes, and fail if it reads unwritten memory."""
    for tensor, writing in (*((part, False) for part in reads), *((part, True) for part in writes)):
        known = written_bytes(tensor)
        if known is None or tensor.numel() == 0:
            continue
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        start = tensor.storage_offset() * tensor.itemsize
        own = known[start : start + (1 + sum((size - 1) * step for size, step in steps)) * tensor.itemsize]
        if writing:
            own[:] = 1
        else:
            assert own.all() or not tensor.is_contiguous(), f"{func.__name__} reads unwritten memory"
