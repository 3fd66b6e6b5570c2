"""Kernel that copies rows but some."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, kernel


@kernel
def delete_rows(values: UInt8s, places: Int64s, row_bytes: int, out: UInt8s) -> None:
    """Copy rows of `row_bytes` bytes between flat byte arrays, but those at the places, which ascend."""
    start, to = 0, 0
    for number in range(places.size + 1):
        stop = values.size if number == places.size else places[number] * row_bytes
        copy_bytes(out, to, values, start, stop - start)
        to += stop - start
        start = stop + row_bytes
