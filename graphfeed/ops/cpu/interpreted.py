"""The instructions of `jit.py` in plain Python, for stepping through kernels with NUMBA_DISABLE_JIT=1.

Each has the name, the arguments and the result of the one that it stands for.
"""

import ctypes
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let integers overflow in silence, as they do in machine code."""

    @wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return run


def prefetch(array: Any, index: Any) -> None:
    """Do nothing: a prefetch has no result."""


def without_refcount(array: Any) -> Any:
    """Return the array."""
    return array


def lowest_bit(value: Any) -> int:
    """Return the position of the lowest set bit."""
    number = int(value)
    return (number & -number).bit_length() - 1


def count_bits(value: Any) -> int:
    """Return how many bits are set."""
    return int(value).bit_count()


def mark_below(values: Any, index: Any, limit: Any) -> np.uint64:
    """Return which of the 32 values from an index on are below a limit: a bit each, the lowest first."""
    return np.uint64(sum(1 << number for number, value in enumerate(values[index : index + 32]) if value < limit))


def multiply_high(left: Any, right: Any) -> np.uint64:
    """Return the high 64 bits of the product."""
    return np.uint64(int(left) * int(right) >> 64)


def less_product(a: Any, b: Any, c: Any, d: Any) -> bool:
    """Return whether `a * b < c * d`."""
    return int(a) * int(b) < int(c) * int(d)


def copy_bytes(out: Any, to: Any, source: Any, start: Any, size: Any) -> None:
    """Copy `size` bytes from `source[start]` to `out[to]`."""
    out[to : to + size] = source[start : start + size]


def read_at(descriptor: Any, segments: Any, count: Any, start: Any) -> int:
    """Read from `start` of an open file into `count` pairs (address, size); return the bytes read or -1."""
    pairs = zip(segments[: 2 * count : 2].tolist(), segments[1 : 2 * count : 2].tolist(), strict=True)
    into = [(ctypes.c_char * size).from_address(address) for address, size in pairs]
    try:
        return os.preadv(int(descriptor), into, int(start))
    except OSError:
        return -1
