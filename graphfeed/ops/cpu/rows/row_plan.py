"""Kernels that plan which rows of a file are read for a window of mini-batches, and which slots they get in memory."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, UInt8s, UInt64s, kernel, lowest_bit, prefetch

MOST_MET = 255
"""Largest count of a row."""
NO_SLOT = -1
"""Slot of a row that is neither in memory nor to be read. A row that is to be read has a lower number, which encodes
the last mini-batch that needs it: `NO_SLOT - 1 - number`."""


class RowPlan(NamedTuple):
    """The arrays of a plan."""

    slots: Int32s
    """Slot of each row, or a number up to `NO_SLOT`."""
    met: UInt8s
    """Number of mini-batches that had each row, up to 255."""
    lacking: UInt64s
    """One bit per row: whether it is to be read for the current window, and for no earlier one."""
    num_lacking: Int64s
    """One number: how many of these bits are set."""
    waiting: UInt64s
    """One bit per row: whether it is to be read for the previous window, and has no slot yet."""
    num_waiting: Int64s
    """One number: how many of these bits are set."""
    rows: Int64s
    """Row of each slot, or -1."""
    needed: Int32s
    """Last mini-batch that is known to need the row of each slot, or -1."""


@kernel
def note_rows(plan: RowPlan, ids: Ids, number: int, first: int, first_before: int, counts: Int64s) -> None:
    """Record the rows that a mini-batch of the current window needs."""
    last = ids.size - 1
    # `first` and `first_before` are the indices of the first mini-batches of this window and of the previous one.
    asked, kept, lacking = np.int64(0), np.int64(0), np.int64(0)
    for index in range(ids.size):
        ahead = np.uintp(ids[min(index + AHEAD, last)])
        prefetch(plan.slots, ahead)
        prefetch(plan.met, ahead)
        row = np.uintp(ids[index])
        if plan.met[row] < MOST_MET:
            plan.met[row] += 1
        slot = plan.slots[row]
        if slot >= 0:
            before = plan.needed[slot]
            asked += before < first
            kept += before < first_before
            plan.needed[slot] = number
            continue
        if slot == NO_SLOT:
            plan.lacking[row >> np.uintp(6)] |= np.uint64(1) << (np.uint64(row) & np.uint64(63))
            lacking += 1
        else:
            asked += NO_SLOT - 1 - slot < first
        plan.slots[row] = NO_SLOT - 1 - number
    plan.num_lacking[0] += lacking
    # The number of rows that are new to the window, and how many of them are in memory although the previous window
    # does not need them.
    counts[0] = asked + lacking
    counts[1] = kept


@kernel
def count_free(plan: RowPlan, first: int, counts: Int64s) -> int:
    """Return the number of empty slots; count the other slots that may be reused, by the counts of their rows."""
    free = np.int64(0)
    for slot in range(plan.rows.size):
        # Mini-batch `first` or a later one needs its row.
        if plan.needed[slot] >= first:
            continue
        if plan.rows[slot] < 0:
            free += 1
        else:
            counts[plan.met[plan.rows[slot]]] += 1
    return free


@kernel
def pop_waiting(plan: RowPlan, rows: Int64s) -> None:
    """Remove the first waiting rows, and write them in ascending order."""
    at = 0
    for word in range(plan.waiting.size):
        bits = plan.waiting[word]
        while bits != 0 and at < rows.size:
            rows[at] = 64 * word + lowest_bit(bits)
            at += 1
            bits &= bits - np.uint64(1)
        plan.waiting[word] = bits
        if at == rows.size:
            break
    plan.num_waiting[0] -= rows.size


@kernel
def place_rows(plan: RowPlan, rows: Int64s, first: int, free: int, counts: Int64s, slots: Int64s) -> None:
    """Assign a slot to each row. Slots whose rows are no longer needed are reused, the rarest rows first."""
    # All rows with a count below `bound` are evicted, and the first `others` of those with this count.
    others = rows.size - free
    bound = 0
    while bound < MOST_MET and others > counts[bound]:
        others -= counts[bound]
        bound += 1
    placed = np.int64(0)
    for slot in range(plan.rows.size):
        if placed == rows.size:
            break
        # Mini-batch `first` or a later one needs its row.
        if plan.needed[slot] >= first:
            continue
        row = plan.rows[slot]
        if row >= 0:
            met = plan.met[row]
            if met > bound or (met == bound and others <= 0):
                continue
            if met == bound:
                others -= 1
            plan.slots[row] = NO_SLOT
        row = rows[placed]
        plan.rows[slot] = row
        plan.needed[slot] = NO_SLOT - 1 - plan.slots[row]
        plan.slots[row] = slot
        slots[placed] = slot
        placed += 1


@kernel
def give_up_waiting(plan: RowPlan, first: int) -> None:
    """Clear the waiting rows. Those that the current window needs are added to `lacking`; the others are not read."""
    for word in range(plan.waiting.size):
        bits = plan.waiting[word]
        while bits != 0:
            # The lowest set bit.
            bit = bits & (~bits + np.uint64(1))
            row = np.uintp(64 * word + lowest_bit(bits))
            bits &= bits - np.uint64(1)
            if NO_SLOT - 1 - plan.slots[row] >= first:
                plan.lacking[word] |= bit
                plan.num_lacking[0] += 1
            else:
                plan.slots[row] = NO_SLOT
        plan.waiting[word] = 0
    plan.num_waiting[0] = 0
