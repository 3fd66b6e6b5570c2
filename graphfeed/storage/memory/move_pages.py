"""Moves memory to a file piece by piece, so that it is never there twice.

A piece is written to the file, then the file's pages take the place of the memory's own at the same address. So whoever
still has the memory reads what was there before, from the file's pages. What is written to it from then on goes to
copies of single pages, and doesn't reach the file.

When such memory is freed, its allocator must give the address back to the system, rather than use it again: the next
user would expect empty pages, and find the file. The GNU C library does that with large blocks, each of which has a
mapping of its own (`has_own_mapping`). Memory of other allocators, or in the middle of a block, is copied.
"""

import mmap
import os

import torch

from graphfeed.ops.backend import lies_as_it_reads
from graphfeed.ops.buffers import as_bytes
from graphfeed.ops.own_pages import has_own_mapping
from graphfeed.ops.pinned import LOCKED, is_page_locked
from graphfeed.storage.memory.memory_map import FAILED, MAP_FIXED, SYSTEM, Bytes

FEWEST_BYTES = 1 << 25
"""Smaller blocks have no mapping of their own for sure, and a second copy of them does no harm."""
PIECE_BYTES = 1 << 25


def can_move(tensor: torch.Tensor) -> bool:
    """Tell whether the memory of a CPU tensor can become pages of a file without harm to its allocator."""
    if tensor.nbytes < FEWEST_BYTES or SYSTEM is None or not hasattr(SYSTEM, "gnu_get_libc_version"):
        return False
    storage = tensor.untyped_storage()
    start, size = storage.data_ptr(), storage.nbytes()
    if is_page_locked(tensor) or any(part.start < start + size and start < part.end for part in tuple(LOCKED)):
        return False  # a GPU reads these very pages
    return lies_as_it_reads(tensor) and has_own_mapping(start, size)


def move_pages(tensor: torch.Tensor, descriptor: int, offset: int) -> None:
    """Write the bytes of a tensor to a file, and let the file's pages take the place of its own.

    Args:
        tensor: One that `can_move`.
        descriptor: A file, open for reading and writing.
        offset: Where the bytes begin in it: as far behind a page's start as the tensor is in memory.

    Raises:
        OSError: The file can't be written. The tensor has the values that it had.
        ValueError: The offset doesn't fit the tensor.
    """
    assert SYSTEM is not None
    data, start = as_bytes(tensor), tensor.data_ptr()
    page, access = mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE
    if (start - offset) % page:
        raise ValueError(f"offset must be as far behind a page's start as the tensor, {start % page}, but is {offset}")
    first, last = -(-start // page) * page - start, (start + data.size) // page * page - start
    write(data[:first], descriptor, offset)
    is_moving = True
    for begin in range(first, last, PIECE_BYTES):
        end = min(begin + PIECE_BYTES, last)
        write(data[begin:end], descriptor, offset + begin)
        if is_moving:
            flags = mmap.MAP_PRIVATE | MAP_FIXED
            place = SYSTEM.mmap(start + begin, end - begin, access, flags, descriptor, offset + begin)
            is_moving = place != FAILED  # what is left is copied, which takes more memory
    write(data[last:], descriptor, offset + last)


def write(data: Bytes, descriptor: int, offset: int) -> None:
    """Write all bytes to a place in a file, which takes half the time of copying them to a mapping of it."""
    written = 0
    while written < data.size:
        written += os.pwrite(descriptor, data[written:].data, offset + written)
