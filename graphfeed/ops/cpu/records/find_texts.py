"""Kernels that look texts up, by open addressing."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, Slots, UInt8s, device_function, kernel, load_word
from graphfeed.ops.cpu.random import mix
from graphfeed.ops.cpu.records.wire import is_same


@device_function
def hash_text(values, start, stop):
    """Return 63 bits that depend on all bytes of a text."""
    state = mix(np.uint64(stop - start))
    while start + 8 <= stop:
        state = mix(state ^ load_word(values, start))
        start += 8
    rest = np.uint64(0)
    for place in range(start, stop):
        rest = rest << np.uint64(8) | np.uint64(values[place])
    return np.int64(mix(state ^ rest) >> np.uint64(1))


@device_function
def find_slot(values, offsets, table, asked, start, stop):
    """Return the slot of an equal text, or the free one where it belongs; -1 if the table is full of others."""
    mask = table.size - 1
    slot = hash_text(asked, start, stop) & mask
    for _ in range(table.size):
        place = np.int64(table[slot])
        if place < 0:
            return slot
        # Neither table nor offsets are checked again for each look-up; what is wrong finds nothing, and reads nothing.
        if place < offsets.size - 1:
            first, last = offsets[place], offsets[place + 1]
            if first >= 0 and last <= values.size and is_same(values, first, last, asked, start, stop):
                return slot
        slot = (slot + 1) & mask
    return np.int64(-1)


@kernel
def index_texts(values: UInt8s, offsets: Int64s, table: Slots) -> None:
    """Write the place of each text to its slot, of equal ones the first; the table is all -1, with room for all.

    Args:
        values: The bytes of all texts.
        offsets: Where each begins, and where the last one ends.
        table: Written: places of texts; its size is a power of two.
    """
    for place in range(offsets.size - 1):
        slot = find_slot(values, offsets, table, values, offsets[place], offsets[place + 1])
        if slot >= 0 and table[slot] < 0:
            table[slot] = place


@kernel
def find_texts(
    values: UInt8s, offsets: Int64s, table: Slots, asked: UInt8s, asked_offsets: Int64s, out: Int64s
) -> None:
    """Write the place of each text that is asked for, -1 where there is none.

    Args:
        values: The bytes of the texts that are searched.
        offsets: Where each begins, and where the last one ends.
        table: What `index_texts` wrote.
        asked: The bytes of those that are looked up.
        asked_offsets: Where each begins, and where the last one ends.
        out: Written: places.
    """
    for number in range(out.size):
        slot = find_slot(values, offsets, table, asked, asked_offsets[number], asked_offsets[number + 1])
        out[number] = table[slot] if slot >= 0 and table[slot] >= 0 else -1
