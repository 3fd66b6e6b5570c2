"""Anonymous memory files, and files mapped into memory, in huge pages where the system has them.

With 4 kB pages, random reads from shared memory spend most of their time on address translation.
"""

import ctypes
import mmap
import os
import sys
import weakref

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Arrays that share a mapping begin at a multiple of this: a cache line."""
HUGE_PAGE = 2 << 20
COLLAPSE = 25
"""Linux's MADV_COLLAPSE, from version 6.1 on."""
MAP_FIXED = 0x10
FAILED = ctypes.c_void_p(-1).value

Bytes = NDArray[np.uint8]


def load_system() -> ctypes.CDLL | None:
    """Return the C library, or None where its mmap may have another signature."""
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
    """Owns a descriptor of a file, and closes it when it is dropped.

    The memory of an anonymous file lives until no process maps it or has it open.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls, size: int) -> "MemoryFile":
        """Create an anonymous file of `size` bytes. It takes memory only where it is written to. Linux only."""
        file = cls(os.memfd_create("graphfeed", os.MFD_CLOEXEC))
        os.truncate(file.descriptor, size)
        return file

    def close(self) -> None:
        """Close the descriptor. Does nothing the second time."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


def align(size: int) -> int:
    """Round up to a multiple of `ALIGNMENT`."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


class MappedMemory:
    """Memory at an address, as an object that NumPy can view; the last view unmaps it."""

    def __init__(self, start: int, size: int) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (start, False)}


def map_shared(descriptor: int, size: int) -> Bytes:
    """Map the first `size` bytes of a file, for reading and writing; the last array that views them unmaps them.

    A large mapping begins at a huge page's boundary; otherwise the system would not use huge pages. The mapping does
    not need the descriptor to stay open.

    Raises:
        OSError: The file can't be mapped.
    """
    if SYSTEM is None:
        return np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8)
    # Reserve more address space than needed, wherever there is some, then map the file over its aligned part.
    step = HUGE_PAGE if size >= HUGE_PAGE else mmap.PAGESIZE
    room = size + step
    reserved = SYSTEM.mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if reserved == FAILED:
        raise OSError(ctypes.get_errno(), f"no address space to map {size} bytes")
    start = -(-reserved // step) * step
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if SYSTEM.mmap(start, size, access, mmap.MAP_SHARED | MAP_FIXED, descriptor, 0) == FAILED:
        error = ctypes.get_errno()
        SYSTEM.munmap(reserved, room)
        raise OSError(error, f"a file can't be mapped with {size} bytes")
    memory = MappedMemory(start, size)
    # Not at exit: threads may still read in the interpreter's last moments.
    weakref.finalize(memory, SYSTEM.munmap, reserved, room).atexit = False
    return np.asarray(memory)


def collapse(memory: Bytes) -> bool:
    """Move the written part of a mapping into huge pages, for every process that maps it; return whether that worked.

    Takes 2 to 4 seconds per GB, once. It only changes how fast the memory is read, and does nothing on systems that
    can't do it.
    """
    start = memory.ctypes.data
    whole = memory.size // HUGE_PAGE * HUGE_PAGE
    if SYSTEM is None or whole == 0 or start % HUGE_PAGE:
        return False
    return int(SYSTEM.madvise(start, whole, COLLAPSE)) == 0
