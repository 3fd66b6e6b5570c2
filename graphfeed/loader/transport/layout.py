"""Where a message's header and buffers lie in one piece of memory."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from graphfeed.storage.memory.memory_map import ALIGNMENT, Bytes, align

ZEROS = bytes(ALIGNMENT)
KNOWN = 1024
"""Messages of the same sizes are laid out once."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table of the buffers' sizes, the header, then each buffer, aligned."""

    table: bytes
    header: slice
    places: tuple[slice, ...]
    gaps: tuple[bytes, ...]
    """Zeros before each buffer."""
    size: int

    def parts(self, header: bytes, arrays: Sequence[Bytes]) -> Iterator[Any]:
        """Yield what a message consists of, in order and without holes."""
        yield self.table
        yield header
        for gap, part in zip(self.gaps, arrays, strict=True):
            yield gap
            yield part


@lru_cache(maxsize=KNOWN)
def lay_out(header_size: int, sizes: tuple[int, ...]) -> Layout:
    """Return the layout of a message whose header and buffers have so many bytes.

    Example:
        >>> layout = lay_out(3, (10, 70))
        >>> layout.header, layout.places, layout.size
        (slice(16, 19, None), (slice(64, 74, None), slice(128, 198, None)), 198)
    """
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    header = slice(len(table), len(table) + header_size)
    places, gaps, end = [], [], header.stop
    for size in sizes:
        start = align(end)
        gaps.append(ZEROS[: start - end])
        end = start + size
        places.append(slice(start, end))
    return Layout(table, header, tuple(places), tuple(gaps), end)


def take_apart(memory: Bytes, header_size: int, count: int) -> tuple[bytes, list[Bytes]]:
    """Return the header of a message, and its buffers, which view the memory."""
    layout = lay_out(header_size, struct.unpack_from(f"<{count}Q", memory.data))
    return memory[layout.header].tobytes(), [memory[place] for place in layout.places]
