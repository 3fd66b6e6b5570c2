"""Page-locked memory, which kernels on a GPU read over the bus (UVA)."""

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from mmap import PAGESIZE
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

    Nothing is copied by it. Any memory of the process will do: also what is shared with other processes, or mapped from
    a file, be it for reading only; of a private mapping for writing, as `load_graph` makes, pages may become the
    process's own. What is page-locked already stays as it is. Whole pages are locked, each once, for CUDA refuses what
    it has: neighbours that share one have it until both are done.

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
    if tensor.numel() == 0:
        return
    start = tensor.data_ptr() // PAGESIZE * PAGESIZE
    end = -(-(tensor.data_ptr() + tensor.nbytes) // PAGESIZE) * PAGESIZE
    with LOCK:
        locked = sorted((part for part in LOCKED if part.start < end and start < part.end), key=lambda part: part.start)
        # Memory that torch has pinned is in none of these.
        if locked or not tensor.is_pinned():
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            locked += lock_between(runtime, start, end, locked, tensor)
            for part in locked:
                part.users += 1
            # The tensor is among the arguments so that its memory is not freed before.
            weakref.finalize(owner, release, runtime, locked, tensor)
    unlock_unused()


@dataclass(eq=False)
class LockedPages:
    """Pages that were locked at once."""

    start: int
    end: int
    memory: torch.Tensor
    """Keeps them mapped."""
    users: int = 0


LOCK = threading.Lock()
LOCKED: list[LockedPages] = []
RELEASED: deque[tuple[Any, list[LockedPages]]] = deque()
READ_ONLY = 8
"""Tells CUDA that a device will only read, without which it refuses memory that the process may only read."""


def lock_between(
    runtime: Any, start: int, end: int, locked: Sequence[LockedPages], tensor: torch.Tensor
) -> list[LockedPages]:
    """Lock the pages from `start` to `end` that are not among the locked ones, which are in order."""
    made: list[LockedPages] = []
    edges = [start, *(edge for part in locked for edge in (part.start, part.end)), end]
    try:
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            if low < high:
                lock(runtime, low, high - low)
                made.append(LockedPages(low, high, tensor))
    except RuntimeError:
        for part in made:
            runtime.cudaHostUnregister(part.start)
        raise
    LOCKED.extend(made)
    return made


def lock(runtime: Any, start: int, size: int) -> None:
    """Lock whole pages, or raise."""
    status = int(runtime.cudaHostRegister(start, size, 0))
    if status != 0 and int(runtime.cudaHostRegister(start, size, READ_ONLY)) != 0:
        forget_error()
        raise RuntimeError(
            f"CUDA can't page-lock {size} bytes (cudaHostRegister returned {status}); free memory, raise the limit of "
            "locked memory (ulimit -l), copy what is mapped from a file with .clone(), or leave pin_memory_() out"
        )
    if status != 0:
        forget_error()


def forget_error() -> None:
    """Take the last error out of CUDA's runtime, where the next kernel that torch starts would find it."""
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def release(runtime: Any, locked: list[LockedPages], tensor: torch.Tensor) -> None:  # noqa: ARG001
    """End a use of pages; the collector may call this anywhere, also while this thread locks others."""
    RELEASED.append((runtime, locked))
    unlock_unused()


def unlock_unused() -> None:
    """Unlock the pages that nobody uses any more, unless somebody is at the list: they do it then."""
    while RELEASED and LOCK.acquire(blocking=False):
        try:
            runtime, locked = RELEASED.popleft()
            for part in locked:
                part.users -= 1
                if part.users == 0:
                    LOCKED.remove(part)
                    runtime.cudaHostUnregister(part.start)
        finally:
            LOCK.release()
