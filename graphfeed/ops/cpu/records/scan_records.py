"""The kernel that finds the records of a TFRecord file in its bytes."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, without_refcount
from graphfeed.ops.cpu.records.crc32c import masked_checksum
from graphfeed.ops.cpu.records.wire import load_word

HEAD = 12
"""The length and its checksum."""
TAIL = 4
"""The checksum of the content."""


@device_function
def stored_checksum(data, at):
    """Return a checksum as it is stored."""
    checksum = np.uint32(0)
    for place in range(4):
        checksum |= np.uint32(data[at + place]) << np.uint32(8 * place)
    return checksum


@kernel
def scan_records(data, begin, end, most_bytes, verify, starts, sizes):
    """Write where records begin and how long they are; return how many, where the next one begins, and what is wrong.

    Args:
        data: Bytes; eight may be read wherever twelve are there.
        begin: Where the first record begins.
        end: Where the bytes end.
        most_bytes: What a record holds at most.
        verify: Whether checksums are held against the content.
        starts: Written: where the content of each record begins.
        sizes: Written: how long it is.
    """
    data = without_refcount(data)
    at = begin
    for count in range(starts.size):
        if end - at < HEAD:
            return count, at, 0
        size = load_word(data, np.intp(at))
        if verify and masked_checksum(data, at, np.int64(8)) != stored_checksum(data, at + 8):
            return count, at, 1
        if size > np.uint64(most_bytes):
            return count, at, 2
        start, size = at + HEAD, np.int64(size)
        if size + TAIL > end - start:
            return count, at, 0
        if verify and masked_checksum(data, start, size) != stored_checksum(data, start + size):
            return count, at, 3
        starts[count] = start
        sizes[count] = size
        at = start + size + TAIL
    return starts.size, at, 0
