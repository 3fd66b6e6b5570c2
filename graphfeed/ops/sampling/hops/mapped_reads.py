"""When a graph in a mapped file is read by page."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
"""Of this thread alone, where the system counts so."""
BLOCK_BYTES = 512
"""What the system counts reads in."""
FEW_READS = 64
"""So many pages that a mini-batch reads from the disk are worth asking for."""


class MappedReads:
    """Whether mini-batches read a graph by page, which asks for pages before it reads them.

    That costs up to a microsecond for each page, also for one that is in memory. So when a mini-batch read next to
    nothing from the disk, the next ones read as they do in memory; until one of these has to wait for pages again. What
    is sampled is the same.
    """

    def __init__(self) -> None:
        self.by_page = True

    @contextmanager
    def watch(self, page_bytes: int) -> Iterator[None]:
        """Watch how a mini-batch is sampled in this thread, and decide for the next."""
        by_page, before = self.by_page, resource.getrusage(THREAD)
        yield
        after = resource.getrusage(THREAD)
        if by_page:
            pages = (after.ru_inblock - before.ru_inblock) * BLOCK_BYTES // page_bytes
        else:
            pages = after.ru_majflt - before.ru_majflt
        self.by_page = pages >= FEW_READS
