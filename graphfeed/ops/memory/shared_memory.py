"""Memory that other processes can map, on huge pages if available, which make random reads far faster.

On Linux, it is an anonymous memory file. Other processes open it by its owner's process id and descriptor, and it
exists while a process maps it. On other systems, it is a temporary file that is removed when its owner exits.
"""

import atexit
import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.mapped_memory import Mapped, all_mapped
from graphfeed.ops.process import current_limits

ALIGNMENT = 64
"""Alignment of arrays that share a mapping: a cache line."""
HUGE_PAGE = 2 << 20
COLLAPSE = 25
"""Linux's MADV_COLLAPSE, since version 6.1."""
POPULATED_BYTES = 1 << 28
"""Number of bytes that `populate` processes between checks for interrupts: some hundredths of a second."""
MAP_FIXED = 0x10
FAILED = ctypes.c_void_p(-1).value

Bytes = NDArray[np.uint8]


def load_system() -> ctypes.CDLL | None:
    """Return the C library, or None if its mmap may have another signature."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.restype = address
    system.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    system.munmap.argtypes = [address, size]
    system.madvise.argtypes = [address, size, number]
    return system


SYSTEM = load_system()


class MemoryFile:
    """Owner of a file descriptor, which closes it when it dies. Anonymous files exist while a process maps them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls, size: int) -> "MemoryFile":
        """Create an anonymous file of `size` bytes. Memory is allocated when it is written to. Linux only."""
        file = cls(os.memfd_create("graphfeed", os.MFD_CLOEXEC))
        os.truncate(file.descriptor, size)
        return file

    def close(self) -> None:
        """Close the descriptor. Has no effect if called again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


def align(size: int, step: int = ALIGNMENT) -> int:
    """Round up to a multiple of `step`."""
    return -(-size // step) * step


class MappedMemory:
    """Memory at an address, as an object that NumPy can view. Views keep it and its `keeps` alive."""

    def __init__(self, start: int, size: int, keeps: object = None) -> None:
        self.keeps = keeps
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (start, False)}


def map_shared(descriptor: int, size: int) -> Bytes:
    """Map the first bytes of a file for reading and writing, aligned to huge pages, until the last view dies."""
    if SYSTEM is None:
        return np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8)
    # Reserve more address space than needed, then map the file over its aligned part.
    step = HUGE_PAGE if size >= HUGE_PAGE else mmap.PAGESIZE
    room = size + step
    reserved = SYSTEM.mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if reserved == FAILED:
        raise OSError(ctypes.get_errno(), f"no address space to map {size} bytes")
    start = align(reserved, step)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if SYSTEM.mmap(start, size, access, mmap.MAP_SHARED | MAP_FIXED, descriptor, 0) == FAILED:
        error = ctypes.get_errno()
        SYSTEM.munmap(reserved, room)
        raise OSError(error, f"a file can't be mapped with {size} bytes")
    memory = MappedMemory(start, size)
    # Not at exit: threads may still read while the interpreter shuts down.
    weakref.finalize(memory, SYSTEM.munmap, reserved, room).atexit = False
    return np.asarray(memory)


def collapse(memory: Bytes) -> bool:
    """Move written pages of a mapping to huge pages, for all processes; return whether it worked. Takes 2 to 4 s/GB."""
    start = memory.ctypes.data
    whole = memory.size // HUGE_PAGE * HUGE_PAGE
    if SYSTEM is None or whole == 0 or start % HUGE_PAGE:
        return False
    return int(SYSTEM.madvise(start, whole, COLLAPSE)) == 0


def read_at_random(tensors: Iterable[torch.Tensor], *, yes: bool) -> None:
    """Advise the system whether mapped files are read at random, so that it doesn't read the pages around."""
    for tensor in tensors:
        if SYSTEM is None:
            return
        start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        SYSTEM.madvise(start, tensor.data_ptr() + tensor.nbytes - start, mmap.MADV_RANDOM if yes else mmap.MADV_NORMAL)


def populate(memory: Bytes) -> bool:
    """Back an unwritten mapping with huge pages; return whether it worked. The last partial huge page is ignored.

    This takes 0.1 s/GB, or up to 2 s/GB if the system must free huge pages first. Writes are far faster afterwards.
    """
    memory[::HUGE_PAGE] = 0  # the system only collapses existing small pages
    pieces = [memory[begin : begin + POPULATED_BYTES] for begin in range(0, memory.size, POPULATED_BYTES)]
    worked = [collapse(piece) for piece in pieces if piece.size >= HUGE_PAGE]
    return all(worked)


class SharedMemory(Mapped):
    """A memory file and its mapping. Arrays over it keep it alive, so that other processes can open it."""

    def __init__(self, file: MemoryFile, path: str, size: int) -> None:
        self._mapped = map_shared(file.descriptor, size)
        self.file = file
        self._path = path
        self.identity = identity_of(file)
        self.__array_interface__ = self._mapped.__array_interface__
        super().__init__(self._mapped.ctypes.data, size)

    @classmethod
    def create(cls, size: int) -> "SharedMemory":
        """Create zeroed memory."""
        if hasattr(os, "memfd_create"):
            return cls(MemoryFile.create(size), "", size)
        descriptor, path = tempfile.mkstemp(prefix="graphfeed-")
        atexit.register(remove_own, path, os.getpid())
        os.truncate(descriptor, size)
        return cls(MemoryFile(descriptor), path, size)

    @classmethod
    def open(cls, file: MemoryFile, path: str, size: int) -> "SharedMemory":
        """Map an open file, or return its existing mapping in this process."""
        identity = identity_of(file)
        known = (memory for memory in all_mapped() if isinstance(memory, SharedMemory))
        return next((memory for memory in known if memory.identity == identity), None) or cls(file, path, size)

    @property
    def path(self) -> str:
        """Path by which other processes of the machine can open it while this process keeps it."""
        # Not the path that this process opened: its creator may have exited by then.
        own = f"/proc/{os.getpid()}/fd/{self.file.descriptor}"
        return own if os.path.exists(own) else self._path


def identity_of(file: MemoryFile) -> tuple[int, int]:
    found = os.fstat(file.descriptor)
    # These are unique while the file exists.
    return found.st_dev, found.st_ino


def remove_own(path: str, owner: int) -> None:
    # A fork of the process that created the file must not remove it.
    if os.getpid() == owner and os.path.exists(path):
        os.remove(path)


def empty_shared(size: int) -> Bytes | None:
    """Return uninitialised memory that other processes can map; None if it is small or huge pages are unavailable."""
    if size < current_limits().shared_bytes or SYSTEM is None:
        return None
    try:
        shared = SharedMemory.create(size)
    except OSError:  # too many files are open, or the system forbids it
        return None
    memory = np.asarray(shared)
    # Each needs a descriptor. Leave half of the process's limit for other uses.
    has_room = shared.file.descriptor < os.sysconf("SC_OPEN_MAX") // 2
    return memory if has_room and populate(memory) else None
