"""Page-locked memory, which kernels on a GPU read over the bus (UVA)."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from graphfeed.ops.checks import check_can_pin

DEFAULT_UVA_THREADS = 10240


@dataclass
class Limit:
    """What holds for all kernels of the process."""

    threads: int = DEFAULT_UVA_THREADS


LIMIT = Limit()


def max_uva_threads() -> int:
    """Return how many threads a kernel that reads page-locked memory has at most."""
    return LIMIT.threads


def set_max_uva_threads(count: int) -> None:
    """Limit the kernels that read page-locked memory, so that a device does other work while they wait for the bus.

    Holds for the process. A few thousand keep the bus busy; a training step has the rest of the device.

    Raises:
        ValueError: A count below 1.

    Example:
        >>> set_max_uva_threads(10240)
        >>> max_uva_threads()
        10240
    """
    LIMIT.threads = check_thread_count(count)


def check_thread_count(count: int) -> int:
    """Return a number of threads, or raise a ValueError where it is none."""
    if count < 1:
        raise ValueError(f"max_uva_threads must be 1 or more, but is {count}")
    return count


def pin_in_place(tensor: torch.Tensor, owner: object) -> None:
    """Page-lock memory where it lies, until its owner dies or the interpreter ends; the memory lives as long.

    Nothing is copied. What is page-locked already stays as it is.

    Args:
        tensor: On the CPU, contiguous.
        owner: What holds the tensor, such as a feature; anything that can be weakly referenced.

    Raises:
        ValueError: A tensor elsewhere, or in pieces.
        RuntimeError: There is no CUDA device, or CUDA refuses the memory.
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(
            f"only contiguous tensors on the CPU can be page-locked in place, but this one is on {tensor.device} "
            f"with strides {tensor.stride()}; move it with .cpu().contiguous()"
        )
    check_can_pin("pin_in_place")
    if tensor.numel() == 0 or tensor.is_pinned():
        return
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    status = int(runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
    if status != 0:
        raise RuntimeError(
            f"CUDA can't page-lock {tensor.nbytes} bytes (cudaHostRegister returned {status}); free memory, raise "
            "the limit of locked memory (ulimit -l), or leave pin_memory_() out"
        )
    # The tensor is among the arguments so that its memory is not freed before.
    weakref.finalize(owner, release, runtime, tensor)


def release(runtime: Any, tensor: torch.Tensor) -> None:
    """End the page-locking of a tensor's memory."""
    runtime.cudaHostUnregister(tensor.data_ptr())
