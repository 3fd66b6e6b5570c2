"""Kernels that copy rows by index."""

from graphfeed.ops.cpu.jit import AHEAD, Int64s, UInt8s, Words, copy_bytes, kernel, prefetch

ROWS_AHEAD = 8
LINE_BYTES = 64
BYTES_AHEAD = 3 * LINE_BYTES
"""Of each row; the processor itself fetches what follows. Asking for more leaves fewer lines in flight for others."""


@kernel
def gather_words(values: Words, index: Int64s, out: Words) -> None:
    last = index.size - 1
    for row in range(index.size):
        prefetch(values, index[min(row + AHEAD, last)])
        out[row] = values[index[row]]


@kernel
def gather_rows(values: UInt8s, index: Int64s, row_bytes: int, out: UInt8s) -> None:
    last = index.size - 1
    for row in range(index.size):
        coming = index[min(row + ROWS_AHEAD, last)] * row_bytes
        for line in range(0, min(row_bytes, BYTES_AHEAD), LINE_BYTES):
            prefetch(values, coming + line)
        copy_bytes(out, row * row_bytes, values, index[row] * row_bytes, row_bytes)
