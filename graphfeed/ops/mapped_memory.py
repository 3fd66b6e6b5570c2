"""Memory that other processes can map, too: noted when it is mapped, since an address alone doesn't tell."""

import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""What Linux calls it; Python lacks the name before 3.13."""
PAGES_AT_ONCE = 1 << 20
IN_USE, OF_FILE = np.uint64(3 << 62), np.uint64(1 << 61)


class Mapped:
    """Memory whose pages hold nothing else. Arrays over it keep it, so it is known as long as one of them lives."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        KNOWN[id(self)] = self

    @property
    def pages(self) -> tuple[int, int]:
        """Where its first page begins, and its last one ends."""
        stop = self.start + self.size
        return self.start - self.start % mmap.PAGESIZE, stop + -stop % mmap.PAGESIZE


class FileMemory(Mapped):
    """Mapped memory of a file, which `path` and `inode` name.

    Args:
        memory: All of it that is mapped.
        offset: Where in the file the memory begins.
        access: What NumPy calls it: "r", "r+", or "c" for writes that don't reach the file.
        shows: The part of the memory that an array made of this object shows.
    """

    def __init__(
        self, memory: NDArray[Any], path: str, inode: int, offset: int, access: str, shows: NDArray[Any] | None = None
    ) -> None:
        super().__init__(memory.ctypes.data, memory.nbytes)
        self.path, self.inode, self.offset, self.access = path, inode, offset, access
        self._shown = memory if shows is None else shows
        # Without the mark of memory that is only read, of which torch would warn.
        self.__array_interface__ = {**self._shown.__array_interface__, "data": (self._shown.ctypes.data, False)}


KNOWN: "weakref.WeakValueDictionary[int, Mapped]" = weakref.WeakValueDictionary()
"""By id. A forked process has what its parent had."""


def all_mapped() -> list[Mapped]:
    return [memory for reference in KNOWN.valuerefs() if (memory := reference()) is not None]


def mapping_of(start: int, stop: int) -> Mapped | None:
    """Return what is mapped around some addresses; None if nothing is known of it."""
    return next((one for one in all_mapped() if one.start <= start and stop <= one.start + one.size), None)


def map_file(descriptor: int, path: str, size: int, offset: int = 0, *, shared: bool = False) -> NDArray[np.uint8]:
    """Map bytes of a file, of which Linux counts what is written to; that goes to copies of pages, unless `shared`."""
    if shared:
        memory = mmap.mmap(descriptor, size, offset=offset)
    elif sys.platform == "linux":
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE | NORESERVE, offset=offset)
    else:
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=offset)
    whole, access = np.frombuffer(memory, np.uint8), "r+" if shared else "c"
    return np.asarray(FileMemory(whole, path, os.fstat(descriptor).st_ino, offset, access))


def note_memmap(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array; if NumPy mapped it, one of the same memory that is known to lie in that file."""
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if not isinstance(whole, np.memmap) or not whole.nbytes or whole.filename is None:
        return array
    try:
        inode = os.stat(whole.filename).st_ino
    except OSError:  # it is gone
        return array
    access = "r+" if whole.mode == "w+" else whole.mode
    return np.asarray(FileMemory(whole, str(whole.filename), inode, whole.offset, access, array))


def is_written(start: int, stop: int) -> bool:
    """Tell whether memory of a file has pages of its own by now; also where the system does not tell."""
    first, last = start // mmap.PAGESIZE, -(-stop // mmap.PAGESIZE)
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as table:
            for page in range(first, last, PAGES_AT_ONCE):
                table.seek(8 * page)
                entries = np.fromfile(table, np.uint64, min(PAGES_AT_ONCE, last - page))
                # A page in memory or swapped out which isn't the file's.
                if np.any((entries & IN_USE != 0) & (entries & OF_FILE == 0)):
                    return True
    except OSError:
        return True
    return False
