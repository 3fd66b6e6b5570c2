"""Kernels that plan which rows of a file are read for a window of mini-batches, and which slots in memory they get."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, UInt8s, UInt64s, kernel, lowest_bit, prefetch

MOST_MET = 255
"""Where the count of a row stops."""
NO_SLOT = -1
"""The slot of a row that is neither in memory nor to be read. That of a row which is to be read is below, and tells the
last mini-batch that needs it: `NO_SLOT - 1 - number`."""


class RowPlan(NamedTuple):
    """The arrays of a plan."""

    slots: Int32s
    """The slot of each row, or `NO_SLOT` or less."""
    met: UInt8s
    """In how many mini-batches each row was, up to 255."""
    lacking: UInt64s
    """A bit for each row: whether it is to be read for the window that is being collected, and for none before."""
    num_lacking: Int64s
    """One number: how many of these bits are set."""
    waiting: UInt64s
    """A bit for each row: whether it is to be read for the window before, and has no slot yet."""
    num_waiting: Int64s
    """One number: how many of these bits are set."""
    rows: Int64s
    """The row of each slot, or -1."""
    needed: Int32s
    """The last mini-batch that is known to need the row of each slot; -1 if none is."""


@kernel
def note_rows(plan: RowPlan, ids: Ids, number: int, first: int, first_before: int, counts: Int64s) -> None:
    """Note what a mini-batch of the window that is being collected needs."""
    last = ids.size - 1
    # `first` and `first_before` number the first mini-batches of this window and of the one before.
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
    # The rows that the window had not asked for before, and how many of these are in memory although the window before
    # does not need them.
    counts[0] = asked + lacking
    counts[1] = kept


@kernel
def count_free(plan: RowPlan, first: int, counts: Int64s) -> int:
    """Return the number of slots that no row has; count others that may be taken, by how often their rows were met."""
    free = np.int64(0)
    for slot in range(plan.rows.size):
        # A mini-batch from `first` on needs its row.
        if plan.needed[slot] >= first:
            continue
        if plan.rows[slot] < 0:
            free += 1
        else:
            counts[plan.met[plan.rows[slot]]] += 1
    return free


@kernel
def take_waiting(plan: RowPlan, rows: Int64s) -> None:
    """Write the first rows that wait, in ascending order, and note that these no longer do."""
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
    """Give a slot to each row, of those that nobody needs any more, and of these first to those met least."""
    # All that were met less often than `bound` leave, and the first `others` of those that were met as often.
    others = rows.size - free
    bound = 0
    while bound < MOST_MET and others > counts[bound]:
        others -= counts[bound]
        bound += 1
    placed = np.int64(0)
    for slot in range(plan.rows.size):
        if placed == rows.size:
            break
        # A mini-batch from `first` on needs its row.
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
    """Let no row wait: those that the window being collected needs too are lacking there; others are not read."""
    for word in range(plan.waiting.size):
        bits = plan.waiting[word]
        while bits != 0:
            # The lowest one that is set.
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
