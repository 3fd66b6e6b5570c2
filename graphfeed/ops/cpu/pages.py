"""Reads of mapped files by kernels: in file order, with pages requested before they are read.

While one block of values is read, the pages of the next block are requested from the system, because one read at a time
reaches a fifth of a disk's speed. Only one block is requested ahead, so that no page is dropped before it is used.
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt64s, device_function, interface_address, will_need

NUMBER_BITS = 20
CHUNK = 1 << NUMBER_BITS
"""Maximum number of values that are sorted together."""
BLOCK = 1024
"""Number of values that are requested together: disks serve some hundreds of reads at a time."""
MOST_PAGES = 32
"""Maximum number of adjacent pages per request: systems silently drop what exceeds their read-ahead."""
DIGIT_BITS = 11
KEY_BITS = np.uint64(64)
PAGE = np.uint64(NUMBER_BITS)
"""Lowest bit of the page number in a key, which has four full digits; the bits below are the index of the value."""
NUMBER = np.uint64(CHUNK - 1)
DIGIT = np.uint64(2**DIGIT_BITS - 1)


class Order(NamedTuple):
    """Scratch arrays for the order in which values are read."""

    keys: UInt64s
    """Page number and index of each value of a chunk."""
    spare: UInt64s
    counts: Int64s
    """Number of keys per digit value."""


@device_function
def page_key(array, position, number, page_bits):
    """Return the key of a value: its page, counted from the array's first page, and its index in the chunk."""
    start = interface_address(array)
    page = ((start + position * array.itemsize) >> page_bits) - (start >> page_bits)
    return np.uint64(page) << PAGE | np.uint64(number)


@device_function
def sort_keys(order, count):
    """Sort keys by page, two digits at a time, so that the result ends up in `order.keys`."""
    keys, highest = order.keys, np.uint64(0)
    for number in range(count):
        highest = max(highest, keys[np.uintp(number)])
    shift = PAGE
    # Digits above the highest page are 0 in all keys.
    while shift < KEY_BITS and highest >> shift > 0:
        sort_digit(keys, order.spare, order.counts, count, shift)
        sort_digit(order.spare, keys, order.counts, count, shift + np.uint64(DIGIT_BITS))
        shift += np.uint64(2 * DIGIT_BITS)


@device_function
def sort_digit(source, target, counts, count, shift):
    """Sort keys stably by one digit."""
    counts[:] = 0
    for number in range(count):
        counts[np.uintp(source[np.uintp(number)] >> shift & DIGIT)] += 1
    # Turn the counts into start positions.
    total = np.int64(0)
    for digit in range(counts.size):
        found = counts[digit]
        counts[digit] = total
        total += found
    for number in range(count):
        key = source[np.uintp(number)]
        digit = np.uintp(key >> shift & DIGIT)
        target[np.uintp(counts[digit])] = key
        counts[digit] += 1


@device_function
def sort_positions(order, array, positions, chunk, count, page_bits):
    for number in range(count):
        position = positions[np.uintp(chunk + number)]
        order.keys[np.uintp(number)] = page_key(array, position, number, page_bits)
    sort_keys(order, count)


@device_function
def ask_ahead(array, keys, block, count, page_bits):
    """Request the pages of the block after `block`; for the first block, also its own pages."""
    at, end = (block if block == 0 else block + BLOCK), min(block + 2 * BLOCK, count)
    first_page = interface_address(array) >> page_bits
    while at < end:
        low = np.int64(keys[np.uintp(at)] >> PAGE)
        high = low
        # Adjacent pages are requested by one call.
        while at < end and np.int64(keys[np.uintp(at)] >> PAGE) <= min(high + 1, low + MOST_PAGES - 1):
            high = np.int64(keys[np.uintp(at)] >> PAGE)
            at += 1
        will_need((first_page + low) << page_bits, (high - low + 1) << page_bits)


@device_function
def touch_pages(order, array, count, page_bits):
    """Read a value on the page of each key, so that these pages are in memory."""
    sort_keys(order, count)
    offset, total = interface_address(array) & ((1 << page_bits) - 1), np.int64(0)
    for block in range(0, count, BLOCK):
        ask_ahead(array, order.keys, block, count, page_bits)
        for at in range(block, min(block + BLOCK, count)):
            begin = (np.int64(order.keys[np.uintp(at)] >> PAGE) << page_bits) - offset
            total += np.int64(array[np.uintp(max(begin, 0) // array.itemsize)])
    order.counts[0] = total  # keeps LLVM from removing the reads
