"""The system's table of mappings: which files lie behind which addresses of this process.

A mapping's pages hold nothing but a part of its file, whoever mapped it: graphfeed, NumPy, torch or another library.
Linux only; elsewhere no memory is known to lie in a file.
"""

import mmap
import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/self/maps")
HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+)\s*(.*)")
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""What Linux calls it; Python lacks the name before 3.13."""
WRITTEN = re.compile(r"(?:Anonymous|Swap):\s+(\d+) kB")


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


def map_privately(descriptor: int, size: int, offset: int = 0) -> mmap.mmap:
    """Map bytes of a file from an offset on, so that what is written there goes to copies of its pages.

    Linux would count all pages as memory that the process may come to need, and refuse files that are larger than its
    memory. Here only those count that are written to.
    """
    if sys.platform == "linux":
        return mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE | NORESERVE, offset=offset)
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=offset)


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
        # A table such as smaps has more lines on each region, behind that with its addresses.
        elif found := WRITTEN.fullmatch(line):
            regions[-1].written += int(found[1])
    return [region for region in regions if region.path.startswith("/")]


def continues(region: Region, after: Region) -> bool:
    same_file = (region.inode, region.path, region.shared) == (after.inode, after.path, after.shared)
    # It shows the part of the file that comes after what the other shows, and lies behind it.
    return same_file and region.start == after.stop and region.offset - after.offset == after.stop - after.start


def mapping_around(start: int, end: int, regions: Sequence[Region]) -> list[Region]:
    """Return all pieces of the mapping of a file that holds some addresses, in ascending order; none if none does.

    The system splits a mapping where it is given advice about a part of it.
    """
    first = last = bisect_right(regions, start, key=lambda region: region.start) - 1
    if first < 0 or start >= regions[first].stop:
        return []
    while first > 0 and continues(regions[first], regions[first - 1]):
        first -= 1
    while last + 1 < len(regions) and continues(regions[last + 1], regions[last]):
        last += 1
    return list(regions[first : last + 1]) if regions[last].stop >= end else []
