"""Page-locked memory, which kernels on a GPU read over the bus (UVA)."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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


class Registration:
    """Memory that is page-locked in place until this is released, dies, or the interpreter ends.

    Args:
        tensor: On the CPU, contiguous; it is kept alive.

    Raises:
        ValueError: A tensor elsewhere, or in pieces.
        RuntimeError: There is no CUDA device, or CUDA refuses the memory.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError(
                f"only contiguous tensors on the CPU can be page-locked in place, but this one is on {tensor.device} "
                f"with strides {tensor.stride()}; move it with .cpu().contiguous()"
            )
        if not torch.cuda.is_available():
            raise RuntimeError("page-locking memory needs a CUDA device, but torch finds none; leave pin_memory_() out")
        self.tensor = tensor
        self.release: Callable[[], object] = lambda: None
        if tensor.numel() == 0 or tensor.is_pinned():
            return
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        address = tensor.data_ptr()
        status = int(runtime.cudaHostRegister(address, tensor.nbytes, 0))
        if status != 0:
            raise RuntimeError(
                f"CUDA can't page-lock {tensor.nbytes} bytes (cudaHostRegister returned {status}); free memory, raise "
                "the limit of locked memory (ulimit -l), or leave pin_memory_() out"
            )
        self.release = weakref.finalize(self, runtime.cudaHostUnregister, address)
