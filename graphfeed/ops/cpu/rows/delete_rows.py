"""Kernels that copy rows but some."""

import numpy as np

from graphfeed.ops.cpu.jit import copy_bytes, kernel


@kernel
def delete_rows(values, places, row_bytes, out):
    """Copy rows of `row_bytes` bytes between flat byte arrays, but those at the places, which ascend."""
    start = 0
    to = 0
    for number in range(places.size + 1):
        stop = values.size if number == places.size else places[number] * row_bytes
        copy_bytes(out, np.intp(to), values, np.intp(start), np.int64(stop - start))
        to += stop - start
        start = stop + row_bytes


@kernel
def delete_from_columns(indptr, places, out):
    """Write where each column starts when the edges at the places are gone."""
    gone = 0
    for column in range(indptr.size):
        while gone < places.size and places[gone] < indptr[column]:
            gone += 1
        out[column] = indptr[column] - gone
