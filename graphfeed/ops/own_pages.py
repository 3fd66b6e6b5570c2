"""Which pages of memory hold a tensor and nothing of anybody else."""

import ctypes
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path

import torch

TABLE = Path("/proc/self/maps")
"""The system's table of mappings: Linux only; elsewhere nothing is known to lie in a mapped file."""
HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+)\s*(.*)")
WRITTEN = re.compile(r"(?:Anonymous|Swap):\s+(\d+) kB")
MAPPED_BYTES = 32 << 20
"""Every allocator maps a block of this size by itself."""
HEADER_BYTES = 16
"""What glibc's `malloc` writes in front of a block."""
SLACK_BYTES = 4 << 20
"""At most so much more than was asked for lies behind that header: it may begin at a huge page."""
IS_MAPPED = 2
"""The flag of a block with a mapping of its own; the other two of the lowest three bits are 0."""


@dataclass(slots=True)
class Region:
    """Addresses of this process, and the part of a file that they show."""

    start: int
    stop: int
    offset: int
    """Where that part begins in the file."""
    inode: int
    path: str
    shared: bool
    """Whether writes go to the file, rather than to copies of its pages."""
    writable: bool
    written: int = 0
    """How many kB are such copies by now."""


def read_regions(table: Path) -> list[Region]:
    """Return the regions with a file, in ascending order; none on a system without such a table."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    regions: list[Region] = []
    for line in lines:
        if found := HEADER.fullmatch(line):
            start, stop, access, offset, inode, path = found.groups()
            numbers = (int(start, 16), int(stop, 16), int(offset, 16), int(inode))
            regions.append(Region(*numbers, path.replace(r"\012", "\n"), access[3] == "s", access[1] == "w"))
        elif found := WRITTEN.fullmatch(line):
            regions[-1].written += int(found[1])
    return [region for region in regions if region.path.startswith("/")]


def continues(region: Region, after: Region) -> bool:
    """Tell whether a region shows the part of a file that comes after what the other shows, and lies behind it."""
    same_file = (region.inode, region.path, region.shared) == (after.inode, after.path, after.shared)
    return same_file and region.start == after.stop and region.offset - after.offset == after.stop - after.start


def mapping_around(start: int, end: int, regions: Sequence[Region]) -> tuple[int, int] | None:
    """Return where the mapping of a file begins and ends that holds some addresses, if one does."""
    first = last = bisect_right(regions, start, key=lambda region: region.start) - 1
    if first < 0 or start >= regions[first].stop:
        return None
    while first > 0 and continues(regions[first], regions[first - 1]):
        first -= 1
    while last + 1 < len(regions) and continues(regions[last + 1], regions[last]):
        last += 1
    return (regions[first].start, regions[last].stop) if regions[last].stop >= end else None


def own_pages(tensor: torch.Tensor, regions: Sequence[Region]) -> tuple[int, int] | None:
    """Return where the pages begin and end that hold a tensor's storage, if they hold nothing else.

    They are all pages of a mapped file or a block of shared memory, and those of a block that the allocator mapped by
    itself because of its size. Smaller blocks lie side by side on the allocator's pages.

    Args:
        tensor: A tensor on the CPU, which may be a part of its storage.
        regions: What `read_regions` returns.

    Example:
        >>> own_pages(torch.zeros(3), read_regions(TABLE)) is None
        True
    """
    storage = tensor.untyped_storage()
    start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    mapping = mapping_around(start, end, regions)
    if mapping is None and not is_mapped_alone(start, end - start):
        return None
    return mapping or (start // PAGESIZE * PAGESIZE, -(-end // PAGESIZE) * PAGESIZE)


def is_mapped_alone(start: int, size: int) -> bool:
    """Tell whether an allocator mapped a block by itself."""
    if start % PAGESIZE == 0:
        return size >= MAPPED_BYTES
    return size >= PAGESIZE and TABLE.exists() and has_own_mapping(start, size)


def has_own_mapping(start: int, size: int) -> bool:
    """Tell whether memory is a whole block of the GNU C library's, in a mapping of its own.

    The library says so in the 16 bytes before the block (`struct malloc_chunk` of its malloc.c, the same since 2001).
    """
    if start % PAGESIZE < HEADER_BYTES:  # what is before it may not be there
        return False
    before, length = (ctypes.c_size_t * 2).from_address(start - HEADER_BYTES)
    begin = start - HEADER_BYTES - before
    end = start - HEADER_BYTES + length - IS_MAPPED
    return (
        length % 8 == IS_MAPPED
        and begin % PAGESIZE == end % PAGESIZE == 0
        and before < PAGESIZE
        and start + size <= end <= start + size + SLACK_BYTES
    )
