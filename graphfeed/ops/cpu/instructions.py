"""Instructions for kernels that Python lacks, as plain Python; `compiler/lowering.py` generates their machine code."""

import ctypes
import os
from typing import Any

import numpy as np

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
"""The type of the function by which CUDA's driver launches a kernel, `cuLaunchKernel`."""


def prefetch(array: Any, index: Any) -> None:
    """Prefetch the cache line of `array[index]`. The index may be out of bounds."""


def lowest_bit(value: Any) -> int:
    """Return the position of the lowest set bit of a uint64, which must not be 0."""
    number = int(value)
    return (number & -number).bit_length() - 1


def count_bits(value: Any) -> int:
    """Return the number of set bits of a uint64."""
    return int(value).bit_count()


def square_root(value: Any) -> Any:
    """Return the square root of a float, rounded once to its own dtype."""
    return np.sqrt(value)


def lanes_below(values: Any, index: Any, limit: Any) -> np.uint64:
    """Return a mask of the values below a limit among 32 values of a uint32 array, starting at an index. Uses SIMD."""
    return np.uint64(sum(1 << number for number, value in enumerate(values[index : index + 32]) if value < limit))


def multiply_high(left: Any, right: Any) -> np.uint64:
    """Return the high 64 bits of the product of two uint64."""
    return np.uint64(int(left) * int(right) >> 64)


def less_product(a: Any, b: Any, c: Any, d: Any) -> bool:
    """Return whether `a * b < c * d` for uint64 values, computed in 128 bits."""
    return int(a) * int(b) < int(c) * int(d)


def copy_bytes(out: Any, to: Any, source: Any, start: Any, size: Any) -> None:
    """Copy `size` bytes from `source[start]` to `out[to]`, between byte arrays."""
    out[to : to + size] = source[start : start + size]


def load_word(array: Any, at: Any) -> Any:
    """Load eight bytes of a byte array at an offset as one uint64. LLVM would turn a loop into eight loads."""
    return array[at : at + 8].view(np.uint64)[0]


def has_crc32c() -> bool:
    """Return whether the processor for which a kernel is compiled has `add_to_crc32c`: a constant in machine code."""
    return False


def add_to_crc32c(checksum: Any, word: Any) -> Any:
    """Return a CRC32C, as uint64, updated with the eight bytes of a word. Requires a processor with SSE 4.2."""
    raise NotImplementedError("the CRC32C instruction needs SSE 4.2; use the tables instead")


def interface_address(array: Any) -> int:
    """Return the memory address of an array."""
    address: int = array.ctypes.data
    return address


def will_need(address: Any, size: Any) -> None:
    """Start reading pages of a mapped file without waiting for them. The address must be page-aligned."""


def read_at(descriptor: Any, segments: Any, count: Any, start: Any) -> int:
    """Read an open file from `start` into `count` pairs (address, size) with preadv; return the bytes read, or -1."""
    pairs = zip(segments[: 2 * count : 2].tolist(), segments[1 : 2 * count : 2].tolist(), strict=True)
    into = [(ctypes.c_char * size).from_address(address) for address, size in pairs]
    try:
        return os.preadv(int(descriptor), into, int(start))
    except OSError:
        return -1


def launch_kernel(launch: Any, function: Any, blocks: Any, threads: Any, stream: Any, packed: Any) -> int:
    """Launch a kernel on a GPU by the driver's function at an address; return its status.

    The kernel, the stream and the description of the kernel's packed arguments are addresses, too.
    """
    launched: int = LAUNCH(int(launch))(
        int(function), int(blocks), 1, 1, int(threads), 1, 1, 0, int(stream), 0, int(packed)
    )
    return launched
