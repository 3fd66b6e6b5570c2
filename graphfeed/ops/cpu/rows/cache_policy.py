"""Kernels of the cache policies: a hash table from keys to slots, and two linked lists, of used and of free slots.

The sentinels of the lists follow the slots. A list's newest slot is `older[sentinel]`, its oldest `newer[sentinel]`.
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Int32s, Int64s, UInt8s, device_function, kernel, prefetch
from graphfeed.ops.cpu.search import find_entry, first_slot

USED, FREE = 0, 1
"""Indices of the linked lists."""
LISTS = 2


class Lists(NamedTuple):
    """State of a cache policy."""

    table: Int32s
    """Hash table with open addressing: the slot of a key, or -1."""
    keys: Int64s
    """Key of each slot."""
    newer: Int32s
    """Next newer slot in the list of a slot; for a sentinel, the oldest slot."""
    older: Int32s
    """Next older slot; for a sentinel, the newest slot."""
    marks: UInt8s
    """Whether a slot was queried since the policy last visited it."""
    hand: Int64s
    """Slot that SIEVE visits next."""


@device_function
def find_slot(lists, key):
    """Return the slot of a key, or -1."""
    return np.int64(lists.table[find_entry(lists.table, lists.keys, key)])


@device_function
def erase(lists, slot):
    """Remove a slot from the table, and move up the entries that the gap would hide."""
    mask = lists.table.size - 1
    gap = find_entry(lists.table, lists.keys, lists.keys[slot])
    place = (gap + 1) & mask
    while lists.table[place] >= 0:
        home = first_slot(lists.table.size, lists.keys[lists.table[place]])
        # A search for this key passes the gap unless it begins after it; the table is circular.
        if ((place - home) & mask) >= ((place - gap) & mask):
            lists.table[gap] = lists.table[place]
            gap = place
        place = (place + 1) & mask
    lists.table[gap] = -1


@device_function
def unlink(lists, slot):
    lists.newer[lists.older[slot]] = lists.newer[slot]
    lists.older[lists.newer[slot]] = lists.older[slot]


@device_function
def push_front(lists, sentinel, slot):
    """Insert a slot as the newest of a list."""
    first = lists.older[sentinel]
    lists.newer[slot] = sentinel
    lists.older[slot] = first
    lists.newer[first] = slot
    lists.older[sentinel] = slot


@device_function
def move_entry(lists, sentinel, slot):
    unlink(lists, slot)
    push_front(lists, sentinel, slot)


@device_function
def pick_victim(lists):
    """Return the slot to evict: the next one that was not queried since the hand visited it."""
    used = lists.keys.size + USED
    hand = lists.hand[0]
    if hand == used:
        hand = np.int64(lists.newer[used])
    while lists.marks[hand] > 0:
        lists.marks[hand] = 0
        hand = np.int64(lists.newer[hand])
        if hand == used:
            hand = np.int64(lists.newer[used])
    lists.hand[0] = lists.newer[hand]
    return hand


@device_function
def fetch_ahead(lists, wanted, row):
    """Prefetch the table slot of the key `2 * AHEAD` rows ahead, and the key to compare with `AHEAD` rows ahead."""
    last = wanted.size - 1
    prefetch(lists.table, first_slot(lists.table.size, wanted[min(row + 2 * AHEAD, last)]))
    slot = lists.table[first_slot(lists.table.size, wanted[min(row + AHEAD, last)])]
    prefetch(lists.keys, max(slot, 0))


@kernel
def clear_state(lists: Lists) -> None:
    slots = lists.keys.size
    lists.table[:] = -1
    lists.marks[:] = 0
    lists.hand[0] = slots + USED
    for sentinel in range(slots, slots + LISTS):
        lists.newer[sentinel] = lists.older[sentinel] = sentinel
    for slot in range(slots):
        push_front(lists, slots + FREE, slot)


@kernel
def find_keys(lists: Lists, wanted: Int64s, places: Int64s, slots: Int64s, missing: Int64s) -> int:
    """Look up the keys in `wanted` and mark the slots of hits; return the number of hits."""
    hits = 0
    for row in range(wanted.size):
        fetch_ahead(lists, wanted, row)
        slot = find_slot(lists, wanted[row])
        if slot < 0:
            missing[row - hits] = row
            continue
        lists.marks[slot] = 1
        places[hits] = row
        slots[hits] = slot
        hits += 1
    return hits


@kernel
def replace_keys(lists: Lists, wanted: Int64s, slots: Int64s) -> None:
    """Assign a slot to each key in order. New keys get -1 once as many new keys were inserted as there are slots."""
    room, free = lists.keys.size, lists.keys.size + FREE
    for row in range(wanted.size):
        fetch_ahead(lists, wanted, row)
        slot = find_slot(lists, wanted[row])
        if slot < 0 and room > 0:
            room -= 1
            slot = np.int64(lists.newer[free])
            if slot == free:
                slot = pick_victim(lists)
                erase(lists, slot)
            # The table is searched again, since the victim's entry was erased.
            lists.table[find_entry(lists.table, lists.keys, wanted[row])] = slot
            lists.keys[slot] = wanted[row]
            lists.marks[slot] = 0
            move_entry(lists, lists.keys.size + USED, slot)
        slots[row] = slot
