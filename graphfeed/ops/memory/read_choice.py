"""Estimate from recent reads whether the contents of a file are in memory."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import resource
except ImportError:  # Windows, which doesn't count page faults per thread
    resource = None  # type: ignore[assignment]

BLOCK_BYTES = 512
"""The unit in which the system counts reads."""
VALUES_PER_WAIT = 512
"""If fewer values than this are read per page from the disk, reads are optimized for the disk. Waiting for a page takes
some hundred times as long as reading a value from memory."""


class ReadChoice:
    """Chooses between a mapping and batched reads, which are faster from a disk and slower from memory.

    After a read that found nearly all pages in memory, the mapping is used. Whenever a read of the mapping waits for
    pages, twice as many reads as before must find their pages in memory before it is used again.
    """

    def __init__(self) -> None:
        self.from_disk = True
        self.needed = 1
        """Number of consecutive reads that must find their pages in memory before the mapping is used."""
        self.in_memory = 0
        """Number of consecutive reads that needed almost nothing from the disk."""
        self.pages = self.values = 0
        """Pages and values read since the last decision."""

    @staticmethod
    @contextmanager
    def count(pages: list[int]) -> Iterator[None]:
        """Append the number of pages that this thread waited for within the block."""
        blocks, faults = count_reads()
        yield
        blocks_after, faults_after = count_reads()
        # Page faults that wait are major ones; prefetched pages only show as blocks. Some systems count no blocks.
        pages.append(max((blocks_after - blocks) * BLOCK_BYTES // mmap.PAGESIZE, faults_after - faults))

    def decide(self, pages: int, values: int) -> None:
        """Decide how to read next by the number of pages from the disk per value, once there are enough values."""
        self.pages, self.values = self.pages + pages, self.values + values
        if self.values < VALUES_PER_WAIT:
            return
        waited = self.pages * VALUES_PER_WAIT > self.values
        self.pages = self.values = 0
        if not self.from_disk and waited:
            self.needed = min(2 * self.needed, 64)
        self.in_memory = 0 if waited else self.in_memory + 1
        self.from_disk = waited or (self.from_disk and self.in_memory < self.needed)


def count_reads() -> tuple[int, int]:
    if resource is None:
        # The system doesn't count.
        return 0, 0
    # Count only this thread, if the system supports it.
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    # The number of blocks read, and of major page faults.
    return usage.ru_inblock, usage.ru_majflt
