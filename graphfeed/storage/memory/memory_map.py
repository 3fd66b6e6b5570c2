"""Memory files in this process's address space, in huge pages where the system has them.

Random reads from shared memory in pages of 4 kB spend most of their time on looking up pages.
"""

import ctypes
import mmap
import sys
import weakref

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Where arrays that share a mapping begin: at a cache line each."""
HUGE_PAGE = 2 << 20
COLLAPSE = 25
"""Linux's MADV_COLLAPSE, from version 6.1 on."""
MAP_FIXED = 0x10
FAILED = ctypes.c_void_p(-1).value

Bytes = NDArray[np.uint8]


def load_system() -> ctypes.CDLL | None:
    """Return the C library where its mmap is known to be called as here."""
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


def align(size: int) -> int:
    """Round up to where the next array may begin."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


class Mapped:
    """Memory at an address, as NumPy takes it; it is unmapped with the last array that views it."""

    def __init__(self, start: int, size: int) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (start, False)}


def map_shared(descriptor: int, size: int) -> Bytes:
    """Map a file of so many bytes, for reading and writing; the mapping goes with the last array that views it.

    Large ones begin where a huge page may, without which the system would not use any. No mapping holds a descriptor.

    Raises:
        OSError: The file can't be mapped.
    """
    if SYSTEM is None:
        return np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8)
    # The system chooses the place of more than is needed; what is mapped over the middle begins at a round address.
    step = HUGE_PAGE if size >= HUGE_PAGE else mmap.PAGESIZE
    room = size + step
    reserved = SYSTEM.mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if reserved == FAILED:
        raise OSError(ctypes.get_errno(), f"no room to map {size} bytes")
    start = -(-reserved // step) * step
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if SYSTEM.mmap(start, size, access, mmap.MAP_SHARED | MAP_FIXED, descriptor, 0) == FAILED:
        error = ctypes.get_errno()
        SYSTEM.munmap(reserved, room)
        raise OSError(error, f"a file can't be mapped with {size} bytes")
    memory = Mapped(start, size)
    # Not at exit: threads of the interpreter's last moments may still read.
    weakref.finalize(memory, SYSTEM.munmap, reserved, room).atexit = False
    return np.asarray(memory)


def collapse(memory: Bytes) -> bool:
    """Move what was written to a mapping into huge pages, for all who map it; tell whether the system did.

    Costs 2 to 4 seconds for each GB, once. Does nothing where the system has no such means: it only changes how fast
    the memory is read.
    """
    start = memory.ctypes.data
    whole = memory.size // HUGE_PAGE * HUGE_PAGE
    if SYSTEM is None or whole == 0 or start % HUGE_PAGE:
        return False
    return int(SYSTEM.madvise(start, whole, COLLAPSE)) == 0
