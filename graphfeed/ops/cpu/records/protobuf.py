"""Readers of bytes for the kernels of records: comparison of strings, and protobuf's fields and integers."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt8s, device_function, load_word

FIXED_BYTES = (-1, 8, -1, -1, -1, 4, -1, -1)
"""Size of a value of each wire type; -1 for types that encode their size, and for obsolete types."""


class Layout(NamedTuple):
    """Each feature's name, kind of list, number of values, bytes per value, and start of its rows."""

    # Names are concatenated; `name_starts` has their offsets.
    names: UInt8s
    name_starts: Int64s
    kinds: Int64s
    counts: Int64s
    widths: Int64s
    # Multiples of 8.
    bases: Int64s


@device_function
def is_same(values, start, stop, others, other, other_stop):
    """Return whether two strings have the same bytes."""
    if stop - start != other_stop - other:
        return False
    while start + 8 <= stop:
        if load_word(values, start) != load_word(others, other):
            return False
        start, other = start + 8, other + 8
    for place in range(stop - start):  # noqa: SIM110
        if values[start + place] != others[other + place]:
            return False
    return True


@device_function
def read_varint(data, at, end):
    """Return an integer as uint64, and its end: -1 if it exceeds `end` or has more than ten bytes."""
    if at < end and data[at] < 0x80:
        return np.uint64(data[at]), at + 1
    value = np.uint64(0)
    for number in range(min(end - at, 10)):
        byte = data[at + number]
        value |= np.uint64(byte & 0x7F) << np.uint64(7 * number)
        if byte < 0x80:
            return value, at + number + 1
    return value, np.int64(-1)


@device_function
def read_field(data, at, end):
    """Return a field's tag, and the start and end of its value; the end is -1 if it is malformed or exceeds `end`."""
    # Nearly all fields have a small tag and a short, length-delimited value.
    if end - at >= 2 and data[at] & 0x87 == 2 and data[at] > 7 and data[at + 1] <= min(end - at - 2, 0x7F):
        return np.int64(data[at]), at + 2, at + 2 + np.int64(data[at + 1])
    return read_rare_field(data, at, end)


@device_function
def read_rare_field(data, at, end):
    """Like `read_field`, for any field."""
    number, at = read_varint(data, at, end)
    # A tag has at most 32 bits, and field 0 is invalid.
    if at < 0 or number < 8 or number >= np.uint64(1 << 32):
        return np.int64(0), np.int64(0), np.int64(-1)
    tag = np.int64(number)
    if tag & 7 == 0:
        number, stop = read_varint(data, at, end)
        return tag, at, stop
    if tag & 7 == 2:
        number, at = read_varint(data, at, end)
        if at < 0 or number > np.uint64(end - at):
            return tag, np.int64(0), np.int64(-1)
        return tag, at, at + np.int64(number)
    size = FIXED_BYTES[tag & 7]
    if size < 0 or size > end - at:
        return tag, np.int64(0), np.int64(-1)
    return tag, at, at + size
