"""Instructions that kernels use and Python lacks, as plain Python; `compiler/lowering.py` has those of the machine."""

import ctypes
import os
from typing import Any

import numpy as np


def prefetch(array: Any, index: Any) -> None:
    """Prefetch the cache line of `array[index]`, which may lie outside of the array."""


def lowest_bit(value: Any) -> int:
    """Return the position of the lowest set bit of a uint64, which must not be 0."""
    number = int(value)
    return (number & -number).bit_length() - 1


def count_bits(value: Any) -> int:
    """Return how many bits of a uint64 are set."""
    return int(value).bit_count()


def mark_below(values: Any, index: Any, limit: Any) -> np.uint64:
    """Return, as bits, which of 32 values of a uint32 array from an index on are below a limit; SIMD compares them."""
    return np.uint64(sum(1 << number for number, value in enumerate(values[index : index + 32]) if value < limit))


def multiply_high(left: Any, right: Any) -> np.uint64:
    """Return the high 64 bits of the product of two uint64."""
    return np.uint64(int(left) * int(right) >> 64)


def less_product(a: Any, b: Any, c: Any, d: Any) -> bool:
    """Return whether `a * b < c * d`, of uint64, in 128 bits."""
    return int(a) * int(b) < int(c) * int(d)


def copy_bytes(out: Any, to: Any, source: Any, start: Any, size: Any) -> None:
    """Copy `size` bytes from `source[start]` to `out[to]`; the arrays are bytes."""
    out[to : to + size] = source[start : start + size]


def load_word(array: Any, at: Any) -> Any:
    """Return eight bytes of a byte array from an offset on as one uint64; LLVM would make eight loads of a loop."""
    return array[at : at + 8].view(np.uint64)[0]


def add_to_crc32c(checksum: Any, word: Any) -> Any:
    """Return a CRC32C, a uint64, with the eight bytes of a word added: an instruction of processors with SSE 4.2."""
    raise NotImplementedError("processors without it go by tables")


def address_of(array: Any) -> int:
    """Return where an array lies."""
    address: int = array.ctypes.data
    return address


def will_need(address: Any, size: Any) -> None:
    """Have the system begin to read mapped pages of a file, and not wait for them; an address must begin a page."""


def read_at(descriptor: Any, segments: Any, count: Any, start: Any) -> int:
    """Read from `start` of an open file into `count` pairs (address, size), by preadv; return the bytes read or -1."""
    pairs = zip(segments[: 2 * count : 2].tolist(), segments[1 : 2 * count : 2].tolist(), strict=True)
    into = [(ctypes.c_char * size).from_address(address) for address, size in pairs]
    try:
        return os.preadv(int(descriptor), into, int(start))
    except OSError:
        return -1
