"""Kernels that copy rows by index."""

from math import gcd

from graphfeed.ops.cuda.launch import WARP_SIZE, launch

WIDEST = 16
"""Bytes that one thread reads at once."""


def gather_words(values, index, out):
    """Copy rows of one machine word."""
    gather_rows(values, index, values.itemsize, out)


def gather_rows(values, index, row_bytes, out):
    """Copy rows of `row_bytes` bytes."""
    shape = _row_shape(row_bytes, values.data_ptr(), out.data_ptr())
    launch(
        "copy_rows", index.numel() << shape[-1],
        values, index, index.itemsize, index.numel(), *shape, out, None, None,
    )  # fmt: skip


def _row_shape(row_bytes, *addresses):
    """Return a row's words, the bytes of a word, and the logarithm of how many lanes copy it."""
    word = gcd(WIDEST, row_bytes, *addresses)
    words = row_bytes // word
    return words, word, (min(words, WARP_SIZE) - 1).bit_length()
