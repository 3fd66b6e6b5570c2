"""Page-locked (pinned) memory, which GPU kernels read over the bus (UVA)."""

import ctypes
import sys
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from mmap import PAGESIZE, mmap
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import check_can_pin, check_count, check_tensors
from graphfeed.ops.mapped_memory import FileMemory, Mapped, mapping_of
from graphfeed.ops.memory.shared_memory import MappedMemory, align, empty_shared
from graphfeed.ops.process import current_limits, renew_in_child, set_limits


def max_uva_threads() -> int:
    """Return the maximum number of threads of a kernel that reads page-locked memory."""
    return current_limits().uva_threads


def set_max_uva_threads(count: int) -> None:
    """Limit the threads of kernels that read page-locked memory, so that the GPU can do other work at the same time.

    The setting is process-wide, and limits each kernel separately. It doesn't apply to kernels that process the values
    afterwards. The count, 1 or more, is rounded down to blocks of 256 threads, but at least one block. A few thousand
    threads keep the bus busy, and leave the GPU to the training step.

    Example:
        >>> set_max_uva_threads(10240)
        >>> max_uva_threads()
        10240
    """
    check_count("max_uva_threads", count, 1)
    if count != max_uva_threads():
        set_limits(replace(current_limits(), uva_threads=count))


def is_page_locked(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in page-locked CPU memory. Doesn't initialise CUDA: before that, returns False."""
    if not tensor.is_cpu or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return is_locked_in_place(tensor) or tensor.is_pinned()


def is_locked_in_place(tensor: torch.Tensor) -> bool:
    """Return whether `page_lock` or `pin_in_place` has locked the mapping of a tensor. Doesn't use CUDA."""
    return tensor.is_cpu and tensor.numel() > 0 and locked_at(tensor.data_ptr()) is not None


def pin_in_place(tensor: torch.Tensor, owner: object) -> None:
    """Page-lock the memory of a tensor without copying it, until its owner dies or the interpreter exits.

    The memory must be a large array of a graph or feature that graphfeed allocated, or a file that graphfeed mapped, or
    a NumPy memory map that was passed to graphfeed. Pages of private writable mappings, such as those of `load_graph`,
    may be copied by the system. Memory that is already page-locked stays locked. A mapped file or a shared block is
    locked completely, and only once.

    Args:
        tensor: A contiguous tensor on the CPU.
        owner: The object that owns the tensor, such as a feature. It must support weak references.

    Raises:
        ValueError: The tensor is not on the CPU or not contiguous, or its pages may contain other memory, such as that
            of other tensors, which CUDA may then refuse to copy.
        RuntimeError: There is no CUDA device, or CUDA rejects the memory.
    """
    check_tensors(tensor=tensor)
    if not tensor.is_cpu or not tensor.is_contiguous():
        raise ValueError(
            f"only contiguous tensors on the CPU can be page-locked in place, but this one is on {tensor.device} "
            f"with strides {tensor.stride()}; move it with .cpu().contiguous()"
        )
    check_can_pin("pin_in_place")
    if not lock_where_they_lie([tensor], owner)[0]:
        raise ValueError(
            f"a tensor of {tensor.nbytes} bytes may share its first or last page with other memory, so it can't be "
            "page-locked in place; copy it with .pin_memory()"
        )


def page_lock(tensors: Sequence[torch.Tensor], owner: object) -> list[torch.Tensor]:
    """Return CPU tensors in page-locked memory: the tensors if they can be locked (see `pin_in_place`), or else copies.

    A copy needs additional memory for as long as the original tensor is alive.

    Raises:
        RuntimeError: There is no CUDA device, or CUDA rejects the memory.
        ValueError: A tensor is not on the CPU.
    """
    check_can_pin("page_lock")
    device = next((tensor.device for tensor in tensors if not tensor.is_cpu), None)
    if device is not None:
        raise ValueError(f"only memory of the CPU can be page-locked, but a tensor is on {device}; move it with .cpu()")
    locked = lock_where_they_lie(tensors, owner)
    return [t if done else locked_copy(t, owner) for t, done in zip(tensors, locked, strict=True)]


def locked_copy(tensor: torch.Tensor, owner: object) -> torch.Tensor:
    # A large copy is in shared memory, so that other processes can map it.
    copy = empty_shared(tensor.nbytes)
    if copy is None:
        return empty_locked(tensor.shape, tensor.dtype).copy_(tensor)
    rows = torch.from_numpy(copy).view(tensor.dtype).reshape(tensor.shape).copy_(tensor)
    pin_in_place(rows, owner)
    return rows


class PinOwner:
    """An owner of page-locked memory, which is unlocked when the owner dies."""


def empty_locked(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialised tensor in page-locked memory, which is released when the last tensor in it dies.

    In contrast, torch rounds sizes up to a power of two, never returns the memory to the system, and reuses it as soon
    as it is freed, even while a kernel reads it. Forked processes share the memory. Errors are those of `page_lock`.
    """
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    # Share it with forked processes: Linux would immediately copy private page-locked memory for each.
    pages = torch.frombuffer(mmap(-1, align(size, PAGESIZE)), dtype=torch.uint8)
    owner = MappedMemory(pages.data_ptr(), size, keeps=[pages, Mapped(pages.data_ptr(), pages.nbytes)])
    lock_where_they_lie([pages], owner)
    return torch.from_numpy(np.asarray(owner)).view(dtype).reshape(tuple(shape))


def lock_where_they_lie(tensors: Sequence[torch.Tensor], owner: object) -> list[bool]:
    """Lock the tensors that don't share pages with other memory; return for each whether it is page-locked."""
    done = []
    used: list[tuple[LockedPages, torch.Tensor]] = []
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    try:
        with LOCKED.lock:
            for tensor in tensors:
                part = None if tensor.numel() == 0 else lock_pages_of(runtime, tensor)
                done.append(tensor.numel() == 0 or (tensor.is_contiguous() and is_page_locked(tensor)))
                if part is not None:
                    part.users += 1
                    used.append((part, tensor))
    finally:
        if used:
            # The finalizer references the tensors, so that their memory is not freed while it is locked.
            weakref.finalize(owner, unlock_pages, runtime, used)
        unlock_unused()
    return done


@dataclass(eq=False)
class LockedPages:
    """A range of page-locked memory."""

    start: int
    end: int
    memory: torch.Tensor
    """A tensor that keeps the pages mapped."""
    users: int = 0


class PageLocks:
    """The memory that this process has page-locked."""

    def __init__(self) -> None:
        self.reset()
        renew_in_child(self, PageLocks.reset)

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.pages: tuple[LockedPages, ...] = ()
        """In the order of addresses; replaced as a whole, so that threads read it without the lock."""
        self.released: deque[tuple[Any, list[tuple[LockedPages, torch.Tensor]]]] = deque()


LOCKED = PageLocks()
READERS: set[int] = set()
"""Devices with kernels that have read CPU memory."""
DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
SAME_ADDRESS = 91
"""The driver's number for whether a device reads page-locked memory at the CPU's addresses."""
READ_ONLY = 8
"""CUDA's flag for memory that a device only reads. Memory that is read-only for the process needs it."""


def locked_at(place: int) -> LockedPages | None:
    # Whole mappings are locked, so an array that begins in one is completely locked.
    pages = LOCKED.pages
    number = bisect_right(pages, place, key=lambda part: part.start)
    return pages[number - 1] if number and place < pages[number - 1].end else None


def lock_pages_of(runtime: Any, tensor: torch.Tensor) -> LockedPages | None:
    """Lock the pages of a tensor if necessary; return them, or None if they may contain other memory."""
    known = locked_at(tensor.data_ptr())
    if known is not None or not tensor.is_contiguous() or is_page_locked(tensor):
        return known
    storage = tensor.untyped_storage()
    # Only known mappings are sure not to share their pages with other memory.
    mapping = mapping_of(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
    if mapping is None:
        return None
    lock(runtime, *mapping.pages, is_file=isinstance(mapping, FileMemory) and mapping.access != "c")
    made = LockedPages(*mapping.pages, tensor)
    LOCKED.pages = tuple(sorted((*LOCKED.pages, made), key=lambda part: part.start))
    return made


def reads_locked_memory() -> bool:
    """Return whether the GPUs read page-locked memory at the addresses that the CPU uses, which kernels are given."""
    answer = ctypes.c_int(1)
    with suppress(OSError, AttributeError):
        ask = ctypes.CDLL(DRIVER).cuDeviceGetAttribute
        for index in range(torch.cuda.device_count()):
            if ask(ctypes.byref(answer), SAME_ADDRESS, index) == 0 and not answer.value:
                return False
    return True


def lock(runtime: Any, start: int, stop: int, *, is_file: bool) -> None:
    """Lock whole pages, or raise a RuntimeError."""
    size = stop - start
    if not reads_locked_memory():
        raise RuntimeError(
            "a GPU of this system can't read page-locked memory at the CPU's addresses; copy graphs and features to it "
            "with .to(...), or leave pin_memory_() out"
        )
    # Pages of a writable file are locked as read-only, if CUDA supports it: otherwise the system would write all of
    # them to the disk when they are unlocked.
    first, second = (READ_ONLY, 0) if is_file else (0, READ_ONLY)
    status = int(runtime.cudaHostRegister(start, size, first))
    if status != 0 and int(runtime.cudaHostRegister(start, size, second)) != 0:
        forget_error()
        raise RuntimeError(
            f"CUDA can't page-lock {size} bytes (cudaHostRegister returned {status}); free memory, raise the limit of "
            "locked memory (ulimit -l), copy memory-mapped tensors with .clone(), or leave pin_memory_() out"
        )
    if status != 0:
        forget_error()


def forget_error() -> None:
    # Otherwise torch's next kernel launch would raise the last error of the CUDA runtime.
    with suppress(RuntimeError):
        torch.ones(1, device=torch.device("cuda", next(devices_in_use(), torch.cuda.current_device())))


def unlock_pages(runtime: Any, used: list[tuple[LockedPages, torch.Tensor]]) -> None:
    # The garbage collector may call this anywhere, even while this thread holds the lock.
    LOCKED.released.append((runtime, used))
    unlock_unused()


def unlock_unused() -> None:
    """Unlock unused pages. If another thread holds the lock, it calls this function afterwards."""
    while LOCKED.released and not is_capturing() and LOCKED.lock.acquire(blocking=False):
        try:
            runtime, used = LOCKED.released.popleft()
            for part, _ in used:
                part.users -= 1
                if part.users == 0 and part in LOCKED.pages:  # not pages that the parent of a forked process locked
                    LOCKED.pages = tuple(own for own in LOCKED.pages if own is not part)
                    wait_for_devices()
                    runtime.cudaHostUnregister(part.start)
        finally:
            LOCKED.lock.release()


def is_capturing() -> bool:
    # Waiting for a device would spoil a CUDA graph that this thread captures.
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())  # type: ignore[no-untyped-call]


def wait_for_devices() -> None:
    # Running kernels may still read the memory.
    for index in devices_in_use():
        with suppress(RuntimeError):
            torch.cuda.synchronize(index)


def devices_in_use() -> Iterator[int]:
    for index in range(torch.cuda.device_count()):
        # Ignore devices that failed or may no longer be used.
        with suppress(RuntimeError):
            if is_in_use(index):
                yield index


def is_in_use(index: int) -> bool:
    try:
        return torch.cuda.memory_reserved(index) > 0
    except NotImplementedError:  # another allocator, such as RMM's, doesn't report it
        return index in READERS or index == torch.cuda.current_device()
