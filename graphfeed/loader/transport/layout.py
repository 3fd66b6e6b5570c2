"""Where the header and the buffers of a message lie in one piece of memory."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphfeed.ops.shared_memory import Bytes, align


@dataclass(frozen=True, slots=True)
class Layout:
    """First a table of the buffers' sizes, then the header, then each buffer, aligned to a cache line."""

    table: bytes
    header: slice
    buffers: tuple[slice, ...]
    size: int

    def write(self, memory: Bytes, header: bytes, buffers: Sequence[Bytes]) -> None:
        """Write a message of this layout into memory."""
        memory[: self.header.stop] = np.frombuffer(self.table + header, dtype=np.uint8)
        for place, buffer in zip(self.buffers, buffers, strict=True):
            memory[place] = buffer


def lay_out(header_size: int, sizes: Sequence[int]) -> Layout:
    """Return the layout of a message, given the sizes of its header and its buffers in bytes.

    Example:
        >>> layout = lay_out(3, (10, 70))
        >>> layout.header, layout.buffers, layout.size
        (slice(16, 19, None), (slice(64, 74, None), slice(128, 198, None)), 198)
    """
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    header = slice(len(table), len(table) + header_size)
    buffers, end = [], header.stop
    for size in sizes:
        start = align(end)
        end = start + size
        buffers.append(slice(start, end))
    return Layout(table, header, tuple(buffers), end)


def split(memory: Bytes, header_size: int, num_buffers: int) -> tuple[bytes, list[Bytes]]:
    """Return the header of a message, and its buffers, which view the memory."""
    layout = lay_out(header_size, struct.unpack_from(f"<{num_buffers}Q", memory.data))
    return memory[layout.header].tobytes(), [memory[place] for place in layout.buffers]
