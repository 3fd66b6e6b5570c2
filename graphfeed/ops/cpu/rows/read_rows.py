"""Kernels that read rows of a file: the system calls of many rows without the interpreter between them."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, address_of, copy_bytes, kernel, read_at

SEGMENTS = 256
"""How many places the rows of one read go to at most; systems allow 1024."""
READ_BYTES = 1 << 22
"""What one read takes at most, unless it is a single row."""


@kernel
def read_rows(file: Int64s, ids: Int64s, places: Int64s, begin: int, segments: Int64s, out: UInt8s) -> int:
    """Read rows by ascending id to their places; return `ids.size`, or the first position that a read fell short of."""
    # The file, where row 0 begins in it, and the size of a row.
    descriptor, start, row_bytes, address = file[0], file[1], file[2], address_of(out)
    first = begin
    while first < ids.size:
        count = 0
        size = 0
        end = first
        while end < ids.size:
            # A row that is asked for again is read once, and copied below.
            again = end > first and ids[end] == ids[end - 1]
            if not again:
                target = address + places[end] * row_bytes
                if end > first and (ids[end] != ids[end - 1] + 1 or size + row_bytes > READ_BYTES):
                    break
                # Rows side by side in the file and in the output are one segment.
                if count > 0 and segments[2 * count - 2] + segments[2 * count - 1] == target:
                    segments[2 * count - 1] += row_bytes
                elif count < SEGMENTS:
                    segments[2 * count] = target
                    segments[2 * count + 1] = row_bytes
                    count += 1
                else:
                    break
                size += row_bytes
            end += 1
        if read_at(descriptor, segments, count, start + ids[first] * row_bytes) != size:
            return first
        for row in range(first + 1, end):
            if ids[row] == ids[row - 1]:
                copy_bytes(out, places[row] * row_bytes, out, places[row - 1] * row_bytes, row_bytes)
        first = end
    return first


@kernel
def read_spans(
    file: Int64s, ids: Int64s, places: Int64s, begin: int, segment: Int64s, buffer: UInt8s, out: UInt8s
) -> int:
    """Like `read_rows`, by reads of whole blocks, which also read what lies between rows that are near."""
    # Also the most bytes between two rows that are read along, and the size of the blocks.
    descriptor, start, row_bytes, gap, block = file[0], file[1], file[2], file[3], file[4]
    # Whole blocks, from the address of one on, with room for a row that begins inside of a block.
    segment[0] = address_of(buffer)
    first = begin
    while first < ids.size:
        low = (start + ids[first] * row_bytes) // block * block
        high = start + (ids[first] + 1) * row_bytes
        end = first + 1
        while end < ids.size:
            row = start + ids[end] * row_bytes
            if row - high > gap or row + row_bytes - low > buffer.size:
                break
            high = row + row_bytes
            end += 1
        segment[1] = (high - low + block - 1) // block * block
        # The last block of a file may be shorter than a block.
        if read_at(descriptor, segment, 1, low) < high - low:
            return first
        for index in range(first, end):
            copy_bytes(out, places[index] * row_bytes, buffer, start + ids[index] * row_bytes - low, row_bytes)
        first = end
    return first
