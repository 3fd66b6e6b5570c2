"""Kernel that reads rows of a file: many system calls without returning to the interpreter."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, interface_address, kernel, read_at


@kernel
def read_rows(
    file: Int64s, ids: Int64s, places: Int64s, begin: int, segment: Int64s, buffer: UInt8s, out: UInt8s
) -> int:
    """Read rows with ascending ids to `places`; return `ids.size`, or the index of the first row of a short read."""
    # The file, the offset of row 0, the size of a row, the largest gap between rows of one read, in bytes, and the
    # block size of reads.
    descriptor, start, row_bytes, gap, block = file[0], file[1], file[2], file[3], file[4]
    # The buffer is aligned to blocks, and has space for a row that begins inside a block.
    segment[0] = interface_address(buffer)
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
        # The last block of a file may be incomplete.
        if read_at(descriptor, segment, 1, low) < high - low:
            return first
        for index in range(first, end):
            copy_bytes(out, places[index] * row_bytes, buffer, start + ids[index] * row_bytes - low, row_bytes)
        first = end
    return first
