"""A registry of mapped memory, since an address doesn't show whether other processes can map it."""

import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag, which Python has no name for before 3.13."""
PAGES_AT_ONCE = 1 << 20
IN_USE, OF_FILE = np.uint64(3 << 62), np.uint64(1 << 61)


class Mapped:
    """Memory that doesn't share its pages with other memory. It is registered while an array over it is alive."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        KNOWN[id(self)] = self

    @property
    def pages(self) -> tuple[int, int]:
        """Start of the first page, and end of the last one."""
        stop = self.start + self.size
        return self.start - self.start % mmap.PAGESIZE, stop + -stop % mmap.PAGESIZE


class FileMemory(Mapped):
    """Mapped memory of a file, which is identified by `path` and `inode`.

    Args:
        memory: The whole mapping.
        offset: Offset of the mapping in the file.
        access: Mode as in NumPy: "r", "r+", or "c" for writes that don't reach the file.
        shows: The part of the memory that an array over this object shows.
    """

    def __init__(
        self, memory: NDArray[Any], path: str, inode: int, offset: int, access: str, shows: NDArray[Any] | None = None
    ) -> None:
        super().__init__(memory.ctypes.data, memory.nbytes)
        self.path, self.inode, self.offset, self.access = path, inode, offset, access
        self._shown = memory if shows is None else shows
        # Marked as writable, because torch warns about read-only memory.
        self.__array_interface__ = {**self._shown.__array_interface__, "data": (self._shown.ctypes.data, False)}


KNOWN: "weakref.WeakValueDictionary[int, Mapped]" = weakref.WeakValueDictionary()
"""Mapped memory by id. A forked process inherits it."""


def all_mapped() -> list[Mapped]:
    return [memory for reference in KNOWN.valuerefs() if (memory := reference()) is not None]


def mapping_of(start: int, stop: int) -> Mapped | None:
    """Return the registered mapping that contains a range of addresses, or None."""
    return next((one for one in all_mapped() if one.start <= start and stop <= one.start + one.size), None)


def map_file(descriptor: int, path: str, size: int, offset: int = 0, *, shared: bool = False) -> NDArray[np.uint8]:
    """Map bytes of a file. Unless `shared`, writes go to private copies of pages, which only then use memory."""
    if shared:
        memory = mmap.mmap(descriptor, size, offset=offset)
    elif sys.platform == "linux":
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE | NORESERVE, offset=offset)
    else:
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=offset)
    whole, access = np.frombuffer(memory, np.uint8), "r+" if shared else "c"
    return np.asarray(FileMemory(whole, path, os.fstat(descriptor).st_ino, offset, access))


def note_memmap(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or, if it is a NumPy memory map, an array over the same memory that is registered."""
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if not isinstance(whole, np.memmap) or not whole.nbytes or whole.filename is None:
        return array
    try:
        inode = os.stat(whole.filename).st_ino
    except OSError:  # it was removed
        return array
    access = "r+" if whole.mode == "w+" else whole.mode
    return np.asarray(FileMemory(whole, str(whole.filename), inode, whole.offset, access, array))


def is_written(start: int, stop: int) -> bool:
    """Return whether mapped memory of a file has private pages; True if the system doesn't report it."""
    first, last = start // mmap.PAGESIZE, -(-stop // mmap.PAGESIZE)
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as table:
            for page in range(first, last, PAGES_AT_ONCE):
                table.seek(8 * page)
                entries = np.fromfile(table, np.uint64, min(PAGES_AT_ONCE, last - page))
                # A page that is in memory or swapped out, and not the file's.
                if np.any((entries & IN_USE != 0) & (entries & OF_FILE == 0)):
                    return True
    except OSError:
        return True
    return False
