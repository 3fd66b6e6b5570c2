"""Kernels that gather rows of codes and decode them into float32."""

import numpy as np

from graphfeed.ops.cpu.jit import Float32s, Ids, UInt8s, UInt16s, UInt32s, device_function, kernel, prefetch
from graphfeed.ops.cpu.rows.gather import LINE_BYTES

ROWS_AHEAD = 16
"""Twice as many as in a gather of float32, since rows of codes are shorter."""
BYTES_AHEAD = 3 * LINE_BYTES
INFINITY = 0x7F800000
"""Exponent bits of infinity and NaN in float32."""
INFINITY_OF_HALF = 0x7C00 << 13
"""Exponent bits of infinity and NaN in float16, shifted to where float32 has its exponent."""


@device_function
def fetch_ahead(values, index, row, size, item_bytes):
    """Prefetch a row that a later iteration reads, of `size` items."""
    coming = np.int64(index[np.uintp(min(row + ROWS_AHEAD, index.size - 1))]) * size
    for item in range(0, min(size, BYTES_AHEAD // item_bytes), LINE_BYTES // item_bytes):
        prefetch(values, coming + item)


@device_function
def bits_of_half(half):
    """Return a float16, given as its bits, as the bits of a float32."""
    rest = np.uint32((half & np.uint32(0x7FFF)) << np.uint32(13))
    # The difference of the exponents' biases is 112. The product is exact, also for subnormal numbers.
    number = np.float32(np.uint32(rest).view(np.float32) * np.float32(2.0**112)).view(np.uint32)
    sign = (half & np.uint32(0x8000)) << np.uint32(16)
    special = np.uint32(INFINITY) * np.uint32(rest >= np.uint32(INFINITY_OF_HALF))
    return np.uint32(number | sign | special)


@device_function
def word_at(codes, at, size):
    """Return a little-endian number of some bytes, at any address."""
    word = np.uint32(0)
    for byte in range(size):
        word |= np.uint32(codes[at + np.uintp(byte)]) << np.uint32(8 * byte)
    return word


@kernel
def decode_own_scales(codes: UInt8s, index: Ids, bits: int, size: int, out: Float32s) -> int:
    """Like `decode_codes`, for rows that end with a scale and an offset, float32 for 8 bits and float16 for 4."""
    outside, row_bytes, wide = 0, (size * bits + 7) // 8, bits // 2
    count = np.uintp(codes.size // (row_bytes + 2 * wide))
    for row in range(index.size):
        fetch_ahead(codes, index, row, row_bytes + 2 * wide, 1)
        place = np.int64(index[np.uintp(row)])
        if np.uintp(place) < count:
            start, to = np.uintp(place * (row_bytes + 2 * wide)), np.uintp(row * size)
            first = word_at(codes, start + np.uintp(row_bytes), wide)
            second = word_at(codes, start + np.uintp(row_bytes + wide), wide)
            if bits == 4:
                first, second = bits_of_half(first), bits_of_half(second)
            scale, offset = np.uint32(first).view(np.float32), np.uint32(second).view(np.float32)
            if bits == 8:
                for column in range(size):
                    at = np.uintp(column)
                    out[to + at] = np.float32(codes[start + at]) * scale + offset
            else:
                for byte in range(size // 2):
                    code, low = codes[start + np.uintp(byte)], np.uintp(2 * byte)
                    out[to + low] = np.float32(code & 15) * scale + offset
                    out[to + np.uintp(2 * byte + 1)] = np.float32(code >> 4) * scale + offset
                if size % 2:
                    code = codes[start + np.uintp(row_bytes - 1)]
                    out[to + np.uintp(size - 1)] = np.float32(code & 15) * scale + offset
        else:
            outside = 1
    return outside


@kernel
def decode_codes(codes: UInt8s, index: Ids, bits: int, scale: Float32s, offset: Float32s, out: Float32s) -> int:
    """Write `code * scale + offset` of each column; return 0, or 1 if an id is out of range, whose row is skipped.

    Two codes of 4 bits are in a byte, the low nibble first. An odd row ends with an unused nibble.
    """
    size, outside = scale.size, 0
    row_bytes = (size * bits + 7) // 8
    count = np.uintp(codes.size // row_bytes)
    for row in range(index.size):
        fetch_ahead(codes, index, row, row_bytes, 1)
        place = np.int64(index[np.uintp(row)])
        start, to = np.uintp(place * row_bytes), np.uintp(row * size)
        if np.uintp(place) >= count:
            outside = 1
        elif bits == 8:
            for column in range(size):
                at = np.uintp(column)
                out[to + at] = np.float32(codes[start + at]) * scale[at] + offset[at]
        else:
            for byte in range(size // 2):
                code, low = codes[start + np.uintp(byte)], np.uintp(2 * byte)
                high = np.uintp(2 * byte + 1)
                out[to + low] = np.float32(code & 15) * scale[low] + offset[low]
                out[to + high] = np.float32(code >> 4) * scale[high] + offset[high]
            if size % 2:
                last = np.uintp(size - 1)
                code = codes[start + np.uintp(row_bytes - 1)]
                out[to + last] = np.float32(code & 15) * scale[last] + offset[last]
    return outside


@kernel
def decode_halves(values: UInt16s, index: Ids, size: int, bfloat16: bool, out: UInt32s) -> int:
    """Like `decode_codes`, for rows of bfloat16 or float16."""
    count, outside = np.uintp(values.size // size), 0
    for row in range(index.size):
        fetch_ahead(values, index, row, size, 2)
        place = np.int64(index[np.uintp(row)])
        start, to = np.uintp(place * size), np.uintp(row * size)
        if np.uintp(place) >= count:
            outside = 1
        elif bfloat16:  # the upper half of float32
            for column in range(size):
                out[to + np.uintp(column)] = np.uint32(values[start + np.uintp(column)]) << np.uint32(16)
        else:
            for column in range(size):
                half = np.uint32(values[start + np.uintp(column)])
                out[to + np.uintp(column)] = bits_of_half(half)
    return outside
