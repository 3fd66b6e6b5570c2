"""Kernels that gather numbers from a mapped file."""

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64s, UInt8s, UInt64s, interface_address, kernel, will_need
from graphfeed.ops.cpu.pages import BLOCK, CHUNK, MOST_PAGES, NUMBER, PAGE, Order, ask_ahead, sort_positions


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


@kernel
def order_by_page(values: Ids, positions: Int64s, page_bits: int, order: Order, pages: UInt8s) -> None:
    """Sort at most `CHUNK` positions by page, and mark their pages."""
    sort_positions(order, values, positions, 0, positions.size, page_bits)
    for at in range(positions.size):
        pages[np.uintp(order.keys[np.uintp(at)] >> PAGE)] = 1


@kernel
def ask_marked(values: Ids, page_bits: int, pages: UInt8s, first: int, end: int) -> None:
    """Request the marked pages in a range of pages; one request for adjacent pages."""
    page, first_page = first, interface_address(values) >> page_bits
    while page < end:
        low = page
        while page < min(end, low + MOST_PAGES) and pages[np.uintp(page)]:
            page += 1
        if page > low:
            will_need((first_page + low) << page_bits, (page - low) << page_bits)
        else:
            page += 1


@kernel
def gather_until(values: Ids, positions: Int64s, keys: UInt64s, done: int, end: int, out: Ids) -> int:
    """Gather the values on the pages before page `end`; return the number of sorted positions that are done."""
    while done < positions.size and np.int64(keys[np.uintp(done)] >> PAGE) < end:
        place = np.uintp(keys[np.uintp(done)] & NUMBER)
        out[place] = values[np.uintp(positions[place])]
        done += 1
    return done
