"""Whether what lies in a file is in memory at present, as the reads of it tell."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import resource
except ImportError:  # Windows, which does not tell how many pages were waited for
    resource = None  # type: ignore[assignment]

BLOCK_BYTES = 512
"""What the system counts reads in."""
VALUES_PER_WAIT = 512
"""If fewer values than this come with each page that is read from the disk, reads are made for the disk. A wait for a
page takes some hundred times as long as the other costs of a value."""


class ReadChoice:
    """Decides between reads of a mapping and many reads at a time, which are faster from a disk and slower from memory.

    When a read found nearly all pages in memory, the next ones go through a mapping. Once one of these had to wait for
    pages, it takes twice as many reads from memory as before until they do so again.
    """

    def __init__(self) -> None:
        self.from_disk = True
        self.needed = 1
        """How many reads in a row must find their pages in memory before the mapping is used."""
        self.in_memory = 0
        """How many reads in a row needed next to nothing from the disk."""
        self.pages = self.values = 0
        """Of reads since the last decision."""

    @staticmethod
    @contextmanager
    def count(pages: list[int]) -> Iterator[None]:
        """Append how many pages this thread has waited for meanwhile."""
        blocks, faults = count_reads()
        yield
        blocks_after, faults_after = count_reads()
        # Faults that wait are major ones; where pages are asked for, they find them. Some systems count no blocks.
        pages.append(max((blocks_after - blocks) * BLOCK_BYTES // mmap.PAGESIZE, faults_after - faults))

    def decide(self, pages: int, values: int) -> None:
        """Decide on the next read by how many pages came from the disk for so many values; few values don't tell."""
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
        # Nobody counts.
        return 0, 0
    # Of this thread alone, where the system counts so.
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    # The blocks that were read so far, and the pages that were waited for.
    return usage.ru_inblock, usage.ru_majflt
