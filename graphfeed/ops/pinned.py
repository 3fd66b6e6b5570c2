"""Page-locked memory, which GPU kernels read over the bus (UVA)."""

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
    """A setting for all kernels of the process."""

    threads: int = DEFAULT_UVA_THREADS


LIMIT = Limit()


def max_uva_threads() -> int:
    """Return the largest number of threads of a kernel that reads page-locked memory."""
    return LIMIT.threads


def set_max_uva_threads(count: int) -> None:
    """Limit the threads of kernels that read page-locked memory, so that the GPU can do other work meanwhile.

    The limit applies to the whole process. A few thousand threads keep the bus busy, and leave the rest of the GPU to
    the training step.

    Raises:
        ValueError: The count is below 1.

    Example:
        >>> set_max_uva_threads(10240)
        >>> max_uva_threads()
        10240
    """
    LIMIT.threads = check_thread_count(count)


def check_thread_count(count: int) -> int:
    """Return a number of threads, or raise a ValueError if it is below 1."""
    if count < 1:
        raise ValueError(f"max_uva_threads must be 1 or more, but is {count}")
    return count


def is_page_locked(tensor: torch.Tensor) -> bool:
    """Tell whether a GPU can read all of a tensor where it lies in the CPU's memory.

    `Tensor.is_pinned` asks about the first byte of the storage. The tensor may lie elsewhere in it, where nothing is
    locked, or may be the one part that is. So what `pin_in_place` has locked is looked up here, and torch is asked only
    about memory of which none is.
    """
    if not tensor.is_cpu:
        return False
    parts = tuple(LOCKED)
    if not parts or tensor.numel() == 0:
        return tensor.is_pinned()
    storage = tensor.untyped_storage()
    first, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if any(part.start < end and first < part.end for part in parts):
        return is_locked_in_place(tensor)
    return tensor.is_pinned()


def is_locked_in_place(tensor: torch.Tensor) -> bool:
    """Tell whether `pin_in_place` has locked all the memory from a tensor's first byte to its last; asks no device."""
    if not LOCKED or not tensor.is_cpu or tensor.numel() == 0:
        return False
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    place = tensor.data_ptr()
    end = place + (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.itemsize
    for part in sorted(LOCKED, key=lambda part: part.start):
        if part.start <= place < part.end:
            place = part.end
    return place >= end


def pin_in_place(tensor: torch.Tensor, owner: object) -> None:
    """Page-lock a tensor's memory where it lies, until its owner dies or the interpreter ends.

    Nothing is copied, and the memory lives as long as it is locked. It may be shared with other processes, or mapped
    from a file, also read-only. Pages of a private writable mapping, as `load_graph` makes, may become the process's
    own. Memory that is page-locked already stays as it is. Whole pages are locked, each only once because CUDA refuses
    to lock a page again; a page that two tensors share stays locked until both are done.

    Args:
        tensor: A contiguous tensor on the CPU.
        owner: The object that holds the tensor, such as a feature. It must support weak references.

    Raises:
        ValueError: The tensor is not on the CPU or not contiguous.
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
        # Memory that torch pinned itself is not in the list.
        if locked or not is_page_locked(tensor):
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            locked += lock_between(runtime, start, end, locked, tensor)
            for part in locked:
                part.users += 1
            # The finalizer holds the tensor, so that its memory is not freed while it is locked.
            weakref.finalize(owner, release, runtime, locked, tensor)
    unlock_unused()


@dataclass(eq=False)
class LockedPages:
    """Pages that one call locked."""

    start: int
    end: int
    memory: torch.Tensor
    """Keeps the pages mapped."""
    users: int = 0


LOCK = threading.Lock()
LOCKED: list[LockedPages] = []
RELEASED: deque[tuple[Any, list[LockedPages]]] = deque()
READ_ONLY = 8
"""Tells CUDA that a device will only read; otherwise it refuses memory that is read-only for the process."""


def lock_between(
    runtime: Any, start: int, end: int, locked: Sequence[LockedPages], tensor: torch.Tensor
) -> list[LockedPages]:
    """Lock the pages from `start` to `end` except those in `locked`, which is sorted."""
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
    """Lock whole pages, or raise a RuntimeError."""
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
    """Clear the last error of CUDA's runtime, which would otherwise be raised by torch's next kernel launch."""
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def release(runtime: Any, locked: list[LockedPages], tensor: torch.Tensor) -> None:  # noqa: ARG001
    """End a use of pages. The garbage collector may call this anywhere, also while this thread holds the lock."""
    RELEASED.append((runtime, locked))
    unlock_unused()


def unlock_unused() -> None:
    """Unlock the pages that nobody uses any more, unless another thread holds the lock: it does so then."""
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
