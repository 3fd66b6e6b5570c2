"""Kernel that finds the records in the bytes of a TFRecord file."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt8s, device_function, kernel, load_word
from graphfeed.ops.cpu.records.crc32c import masked_checksum

HEAD = 12
"""Bytes of the length and its checksum."""
TAIL = 4
"""Bytes of the checksum of the content."""


@device_function
def stored_checksum(data, at):
    checksum = np.uint32(0)
    for place in range(4):
        checksum |= np.uint32(data[at + place]) << np.uint32(8 * place)
    return checksum


@kernel
def scan_records(
    data: UInt8s, begin: int, most_bytes: int, verify: bool, starts: Int64s, sizes: Int64s, found: Int64s
) -> None:
    """Write the start and the size of each record's content."""
    # `load_word` reads eight of the twelve bytes of a head.
    at, end, count, code = begin, data.size, 0, 0
    while count < starts.size and end - at >= HEAD:
        size = load_word(data, at)
        if verify and masked_checksum(data, at, 8) != stored_checksum(data, at + 8):
            code = 1
            break
        if size > np.uint64(most_bytes):
            code = 2
            break
        start, content = at + HEAD, np.int64(size)
        if content + TAIL > end - start:
            break
        if verify and masked_checksum(data, start, content) != stored_checksum(data, start + content):
            code = 3
            break
        starts[count], sizes[count] = start, content
        at, count = start + content + TAIL, count + 1
    # The number of records, the start of the next one, and the code of an error or 0.
    found[0], found[1], found[2] = count, at, code
