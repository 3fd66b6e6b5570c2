"""Kernels that copy rows by index."""

from math import gcd

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits

WIDEST = 16
"""Maximum number of bytes that a thread reads at once."""


def gather_rows(values, index, row_bytes, out):
    _gather(values, index, row_bytes, out)


def _gather(values, index, row_bytes, out, num_rows=None, to_rows=None):
    """Copy rows by index, possibly over the bus, to distinct `to_rows` (-1: skip the row; None: consecutive rows)."""
    if values.is_cpu and values.nbytes >= current_limits().sorted_bytes:
        # If only the GPU knows the number of rows, sort the arbitrary ids after them to the end.
        if num_rows is not None:
            places = torch.arange(index.numel(), device=index.device)
            index = torch.where(places < num_rows, index, torch.iinfo(index.dtype).max)
        index, order = torch.sort(index)
        to_rows = order if to_rows is None else to_rows[order]
    word = gcd(WIDEST, row_bytes, values.data_ptr(), out.data_ptr())
    words = row_bytes // word
    lane_bits = (min(words, WARP_SIZE) - 1).bit_length()
    launch(
        "copy_rows", index.numel() << lane_bits,
        values, index, index.numel(), num_rows, words, word, lane_bits, out, to_rows,
    )  # fmt: skip


def _read_first(values, positions, num_positions):
    """Read values over the bus; return them and None, or the arguments if the values need not cross the bus."""
    if values is None or not values.is_cpu:
        return values, positions
    # A separate kernel reads over the bus, so that the limit of threads doesn't apply to later kernels.
    found = buffers.empty(positions.numel(), values, positions.device)
    _gather(values, positions, values.itemsize, found, num_positions)
    return found, None


def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):
    if not distinct:
        places = torch.arange(to_rows.numel(), device=to_rows.device)
        last = torch.full((out.numel() // row_bytes + 1,), -1, dtype=torch.int64, device=out.device)
        # For duplicate targets, the last row is copied, as on the CPU.
        last.scatter_reduce_(0, to_rows + 1, places, "amax")
        to_rows = torch.where(last[to_rows + 1] == places, to_rows, -1)
    _gather(source, from_rows, row_bytes, out, to_rows=to_rows)
