"""Page-locked memory, which GPU kernels read over the bus (UVA)."""

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from mmap import PAGESIZE, mmap
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import check_can_pin, check_count, check_tensors
from graphfeed.ops.mapped_memory import FileMemory, Mapped, mapping_of
from graphfeed.ops.memory.shared_memory import MappedMemory, align, empty_shared
from graphfeed.ops.process import renew_in_child


@dataclass
class Limit:
    """A setting for all kernels of the process."""

    threads: int = 10240


LIMIT = Limit()


def max_uva_threads() -> int:
    """Return the largest number of threads of a kernel that reads page-locked memory."""
    return LIMIT.threads


def set_max_uva_threads(count: int) -> None:
    """Limit the threads of kernels that read page-locked memory, so that the GPU can do other work meanwhile.

    The limit applies to the whole process, and to each kernel alone; those that look up or relabel what was read over
    the bus have as many threads as they can use. The count, 1 or more, is rounded down to whole blocks of 256 threads,
    of which there is at least one. A few thousand keep the bus busy, and leave the GPU to the training step.

    Example:
        >>> set_max_uva_threads(10240)
        >>> max_uva_threads()
        10240
    """
    check_count("max_uva_threads", count, 1)
    LIMIT.threads = count


def is_page_locked(tensor: torch.Tensor) -> bool:
    """Tell whether a GPU can read all of a tensor where it lies in the CPU's memory; CUDA isn't initialised for it."""
    if not tensor.is_cpu or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return is_locked_in_place(tensor) or tensor.is_pinned()


def is_locked_in_place(tensor: torch.Tensor) -> bool:
    """Tell whether `page_lock` has locked the mapping in which a tensor lies; asks no device."""
    return tensor.is_cpu and tensor.numel() > 0 and locked_at(tensor.data_ptr()) is not None


def pin_in_place(tensor: torch.Tensor, owner: object) -> None:
    """Page-lock a tensor's memory where it lies, until its owner dies or the interpreter ends.

    The memory, which isn't copied, must be that of large arrays of graphs and features that graphfeed made, or of a
    file that graphfeed mapped, or that NumPy mapped and graphfeed took as that array. Pages of a private writable
    mapping, as `load_graph` makes, may become the process's own. What is page-locked already stays so. A mapped file or
    a shared block is locked whole, and only once.

    Args:
        tensor: A contiguous tensor on the CPU.
        owner: The object that holds the tensor, such as a feature. It must support weak references.

    Raises:
        ValueError: The tensor is not on the CPU or not contiguous, or lies on pages that may hold other memory, too, as
            those of torch and NumPy, which CUDA may then refuse to copy.
        RuntimeError: There is no CUDA device, or CUDA refuses the memory.
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
    """Return tensors of the CPU in page-locked memory: themselves where `pin_in_place` can lock them, otherwise copies.

    A copy takes the memory of both for as long as you keep the tensor.

    Raises:
        RuntimeError: There is no CUDA device, or CUDA refuses the memory.
        ValueError: A tensor is not on the CPU.
    """
    check_can_pin("page_lock")
    device = next((tensor.device for tensor in tensors if not tensor.is_cpu), None)
    if device is not None:
        raise ValueError(f"only memory of the CPU can be page-locked, but a tensor is on {device}; move it with .cpu()")
    locked = lock_where_they_lie(tensors, owner)
    return [t if done else locked_copy(t, owner) for t, done in zip(tensors, locked, strict=True)]


def locked_copy(tensor: torch.Tensor, owner: object) -> torch.Tensor:
    # A large copy lies where other processes can map it, too.
    copy = empty_shared(tensor.nbytes)
    if copy is None:
        return empty_locked(tensor.shape, tensor.dtype).copy_(tensor)
    rows = torch.from_numpy(copy).view(tensor.dtype).reshape(tensor.shape).copy_(tensor)
    pin_in_place(rows, owner)
    return rows


class PinOwner:
    """Holds what was locked for it as long as it lives."""


def empty_locked(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialised tensor in page-locked memory, which is released with the last tensor that lies there.

    Torch's own rounds sizes up to a power of two, stays with the process, and is handed out again as soon as it is
    freed, also while a kernel reads it. What one process writes, forked ones see too. It fails as `page_lock` does.
    """
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    # Forked processes share it: Linux copies page-locked memory that is private at once for each of them.
    pages = torch.frombuffer(mmap(-1, align(size, PAGESIZE)), dtype=torch.uint8)
    owner = MappedMemory(pages.data_ptr(), size, keeps=[pages, Mapped(pages.data_ptr(), pages.nbytes)])
    lock_where_they_lie([pages], owner)
    return torch.from_numpy(np.asarray(owner)).view(dtype).reshape(tuple(shape))


def lock_where_they_lie(tensors: Sequence[torch.Tensor], owner: object) -> list[bool]:
    """Lock the tensors on pages of their own; tell for each whether a GPU can read it where it lies."""
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
            # The finalizer holds the tensors, so that their memory is not freed while it is locked.
            weakref.finalize(owner, release, runtime, used)
        unlock_unused()
    return done


@dataclass(eq=False)
class LockedPages:
    """Pages that one call locked."""

    start: int
    end: int
    memory: torch.Tensor
    """Keeps the pages mapped."""
    users: int = 0


class PageLocks:
    """What this process has locked."""

    def __init__(self) -> None:
        self.begin()
        renew_in_child(self, PageLocks.begin)

    def begin(self) -> None:
        self.lock = threading.Lock()
        self.pages: list[LockedPages] = []
        self.released: deque[tuple[Any, list[tuple[LockedPages, torch.Tensor]]]] = deque()


LOCKED = PageLocks()
READERS: set[int] = set()
"""The devices on which kernels were started that read the CPU's memory."""
READ_ONLY = 8
"""Tells CUDA that a device will only read; otherwise it refuses memory that is read-only for the process."""


def locked_at(place: int) -> LockedPages | None:
    # Whole mappings are locked, so what begins in one lies in it.
    return next((part for part in tuple(LOCKED.pages) if part.start <= place < part.end), None)


def lock_pages_of(runtime: Any, tensor: torch.Tensor) -> LockedPages | None:
    """Lock the pages of a tensor unless they are; return them, or None if they are not its own."""
    known = locked_at(tensor.data_ptr())
    if known is not None or not tensor.is_contiguous() or is_page_locked(tensor):
        return known
    storage = tensor.untyped_storage()
    # The pages of what is mapped hold nothing else; those of other memory may.
    mapping = mapping_of(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
    if mapping is None:
        return None
    lock(runtime, *mapping.pages, is_file=isinstance(mapping, FileMemory) and mapping.access != "c")
    made = LockedPages(*mapping.pages, tensor)
    LOCKED.pages.append(made)
    return made


def lock(runtime: Any, start: int, stop: int, *, is_file: bool) -> None:
    """Lock whole pages, or raise a RuntimeError."""
    size = stop - start
    # Those of a file that is written to are locked for reading, where CUDA can do that: the system would write all
    # others to the disk anew when they are unlocked.
    first, second = (READ_ONLY, 0) if is_file else (0, READ_ONLY)
    status = int(runtime.cudaHostRegister(start, size, first))
    if status != 0 and int(runtime.cudaHostRegister(start, size, second)) != 0:
        forget_error()
        raise RuntimeError(
            f"CUDA can't page-lock {size} bytes (cudaHostRegister returned {status}); free memory, raise the limit of "
            "locked memory (ulimit -l), copy what is mapped from a file with .clone(), or leave pin_memory_() out"
        )
    if status != 0:
        forget_error()


def forget_error() -> None:
    # Otherwise torch's next kernel launch would raise the last error of CUDA's runtime.
    with suppress(RuntimeError):
        torch.ones(1, device=torch.device("cuda", next(devices_in_use(), torch.cuda.current_device())))


def release(runtime: Any, used: list[tuple[LockedPages, torch.Tensor]]) -> None:
    # The garbage collector may call this anywhere, also while this thread holds the lock.
    LOCKED.released.append((runtime, used))
    unlock_unused()


def unlock_unused() -> None:
    """Unlock the pages that nobody uses any more, unless another thread holds the lock: it does so then."""
    while LOCKED.released and not is_capturing() and LOCKED.lock.acquire(blocking=False):
        try:
            runtime, used = LOCKED.released.popleft()
            for part, _ in used:
                part.users -= 1
                if part.users == 0 and part in LOCKED.pages:  # not what a process locked that this one is a fork of
                    LOCKED.pages.remove(part)
                    wait_for_devices()
                    runtime.cudaHostUnregister(part.start)
        finally:
            LOCKED.lock.release()


def is_capturing() -> bool:
    # Waiting for a device would spoil a CUDA graph that this thread captures.
    return torch.version.cuda is not None and torch.cuda.is_current_stream_capturing()


def wait_for_devices() -> None:
    # What runs there may still read what is about to be unlocked.
    for index in devices_in_use():
        with suppress(RuntimeError):
            torch.cuda.synchronize(index)


def devices_in_use() -> Iterator[int]:
    for index in range(torch.cuda.device_count()):
        # A device that failed, or may no longer be used, reads nothing.
        with suppress(RuntimeError):
            if is_in_use(index):
                yield index


def is_in_use(index: int) -> bool:
    try:
        return torch.cuda.memory_reserved(index) > 0
    except NotImplementedError:  # another allocator than torch's own, such as RMM's, doesn't tell
        return index in READERS or index == torch.cuda.current_device()
