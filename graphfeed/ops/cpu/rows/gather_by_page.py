"""Kernel that gathers numbers from a mapped file."""

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64s, kernel
from graphfeed.ops.cpu.pages import BLOCK, CHUNK, NUMBER, Order, ask_ahead, sort_positions


@kernel
def gather_by_page(values: Ids, positions: Int64s, page_bits: int, order: Order, out: Ids) -> None:
    """Gather the values of a mapped file at positions in any order."""
    for chunk in range(0, positions.size, CHUNK):
        count = min(positions.size - chunk, CHUNK)
        sort_positions(order, values, positions, chunk, count, page_bits)
        for block in range(0, count, BLOCK):
            ask_ahead(values, order.keys, block, count, page_bits)
            for at in range(block, min(block + BLOCK, count)):
                place = np.uintp(chunk + np.int64(order.keys[np.uintp(at)] & NUMBER))
                out[place] = values[np.uintp(positions[place])]
