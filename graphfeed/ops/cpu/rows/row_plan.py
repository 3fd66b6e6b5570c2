"""Kernels that plan which rows of a file are read for a window of mini-batches, and which slots in memory they get."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, UInt8s, UInt64s, kernel, lowest_bit, prefetch

MOST_MET = 255
"""Where the count of a row stops."""


class RowPlan(NamedTuple):
    """The arrays of a plan."""

    slots: Int32s
    """The slot of each row, or -1."""
    met: UInt8s
    """In how many mini-batches each row was, up to 255."""
    lacking: UInt64s
    """A bit for each row: whether the window that is being collected needs it and no slot has it."""
    num_lacking: Int64s
    """One number: how many of these bits are set."""
    rows: Int64s
    """The row of each slot, or -1."""
    windows: Int32s
    """The last window that needs each slot; -1 if none does."""


@kernel
def note_rows(plan: RowPlan, ids: Ids, window: int) -> int:
    """Note what a mini-batch of the window that is being collected needs.

    Args:
        plan: Changed.
        ids: Rows, each any number of times.
        window: The number of the window.

    Returns:
        The number of rows that the window had not asked for before.
    """
    last = ids.size - 1
    here = np.int64(0)
    lacking = np.int64(0)
    for index in range(ids.size):
        ahead = np.uintp(ids[min(index + AHEAD, last)])
        prefetch(plan.slots, ahead)
        prefetch(plan.met, ahead)
        row = np.uintp(ids[index])
        if plan.met[row] < MOST_MET:
            plan.met[row] += 1
        slot = plan.slots[row]
        if slot >= 0:
            if plan.windows[slot] != window:
                plan.windows[slot] = window
                here += 1
            continue
        word, bit = row >> np.uintp(6), np.uint64(1) << (np.uint64(row) & np.uint64(63))
        if plan.lacking[word] & bit == 0:
            plan.lacking[word] |= bit
            lacking += 1
    plan.num_lacking[0] += lacking
    return lacking + here


@kernel
def take_lacking(plan: RowPlan, rows: Int64s) -> None:
    """Write the rows that are lacking in ascending order, and note that none is.

    Args:
        plan: Changed.
        rows: Written, as long as there are rows lacking.
    """
    at = 0
    for word in range(plan.lacking.size):
        bits = plan.lacking[word]
        if bits == 0:
            continue
        plan.lacking[word] = 0
        while bits != 0:
            rows[at] = 64 * word + lowest_bit(bits)
            at += 1
            bits &= bits - np.uint64(1)
    plan.num_lacking[0] = 0


@kernel
def place_rows(plan: RowPlan, rows: Int64s, window: int, first: int, counts: Int64s, slots: Int64s) -> int:
    """Give a slot to each row, of those that nobody needs any more, and of these first to those met least.

    Args:
        plan: Changed.
        rows: What no slot has, ascending.
        window: The number of the window that needs them.
        first: The number of the first window whose rows must stay.
        counts: Scratch: 256 zeros.
        slots: Written, ascending: the slot of each row that gets one.

    Returns:
        The number of rows that get a slot: the first ones, if there are not enough slots.
    """
    free = np.int64(0)
    for slot in range(plan.rows.size):
        if plan.rows[slot] < 0:
            free += 1
        elif plan.windows[slot] < first:
            counts[plan.met[plan.rows[slot]]] += 1
    # All that were met less often than `bound` leave, and the first `others` of those that were met as often.
    needed = rows.size - free
    bound = 0
    while bound <= MOST_MET and needed > counts[bound]:
        needed -= counts[bound]
        bound += 1
    others = needed
    placed = np.int64(0)
    for slot in range(plan.rows.size):
        if placed == rows.size:
            break
        row = plan.rows[slot]
        if row >= 0:
            if plan.windows[slot] >= first:
                continue
            met = plan.met[row]
            if met > bound or (met == bound and others <= 0):
                continue
            if met == bound:
                others -= 1
            plan.slots[row] = -1
        plan.rows[slot] = rows[placed]
        plan.windows[slot] = window
        plan.slots[rows[placed]] = slot
        slots[placed] = slot
        placed += 1
    return placed
