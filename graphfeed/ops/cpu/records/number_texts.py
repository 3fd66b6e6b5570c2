"""Kernel that numbers texts, and keeps each once."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, kernel
from graphfeed.ops.cpu.records.find_texts import BLOCK, PLACES, begin_block, find_slot, slot_of


@kernel
def number_texts(
    values: UInt8s,
    offsets: Int64s,
    table: Int64s,
    count: Int64s,
    asked: UInt8s,
    asked_offsets: Int64s,
    first: int,
    out: Int64s,
    block: Int64s,
) -> int:
    """Number texts by first appearance, and keep new ones; return the first without room, or how many there are."""
    for begin in range(first, out.size, BLOCK):
        for number in range(begin_block(values, offsets, table, asked, asked_offsets, begin, block)):
            start, stop, found = asked_offsets[begin + number], asked_offsets[begin + number + 1], block[number]
            slot = find_slot(values, offsets, table, found, block[BLOCK + number], asked, start, stop)
            if table[slot] < 0:
                kept = count[0]
                end = offsets[kept]
                # Half of the table stays free.
                if 2 * kept + 2 > table.size or kept + 1 >= offsets.size or stop - start > values.size - end:
                    return begin + number
                for place in range(stop - start):
                    values[end + place] = asked[start + place]
                offsets[kept + 1] = end + stop - start
                table[slot] = slot_of(kept, found)
                count[0] = kept + 1
            out[begin + number] = table[slot] & PLACES
    return out.size
