"""Passes that draw uniformly, with or without replacement, and that pick the latest edges."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, device_function, kernel
from graphfeed.ops.cpu.random import draw_below
from graphfeed.ops.cpu.sampling.passes.columns import fanout_of
from graphfeed.ops.cpu.sampling.passes.state import COUNT, NEEDED, SHORT, PickBlock, Runs
from graphfeed.ops.cpu.search import find_key

ALL = np.int64(np.iinfo(np.int64).max)
FEW = 8
"""Up to this many edges of a run are copied as if there were exactly so many."""


class PickTable(NamedTuple):
    """A hash table of picks, all -1 between columns. Its size is a power of two."""

    slots: Int64s


@kernel
def count_uniform(replace: bool, columns: Runs, picks: PickBlock) -> int:
    """Write the offsets of each run's picks: its fan-out or, without replacement, at most its degree."""
    degrees, offsets = columns.degrees, columns.offsets
    total = offsets[0]
    for run in range(columns.sizes[COUNT]):
        fanout, degree = fanout_of(columns, run), degrees[np.uintp(run)]
        # A fan-out of -1 picks every edge exactly once, also with replacement.
        if replace and fanout >= 0:
            total += fanout if degree > 0 else 0
        else:
            total += min(degree, ALL if fanout < 0 else fanout)
        offsets[np.uintp(run + 1)] = total
    columns.sizes[NEEDED] = total
    return 0 if picks.positions.size >= total else SHORT


@kernel
def fill_uniform(table: PickTable, columns: Runs, picks: PickBlock) -> None:
    """Write the picks of each run, drawn without replacement. No memory is read at random."""
    positions = picks.positions
    at, few = columns.offsets[0], table.slots.size == 0
    for number in range(columns.sizes[COUNT]):
        run = np.uintp(number)
        end = columns.offsets[np.uintp(number + 1)]
        count, low, degree = end - at, columns.starts[run], columns.degrees[run]
        if count == degree and count <= FEW and at + FEW <= positions.size:
            # More than it has: the next runs write to these places, too. A constant count needs no branches.
            for place in range(FEW):
                positions[np.uintp(at + place)] = low + place
        elif count == degree:
            for place in range(count):
                positions[np.uintp(at + place)] = low + place
        elif few:
            pick_few(low, degree, count, columns.states[run], positions, at)
        else:
            pick_many(low, degree, count, columns.states[run], positions, at, table.slots)
        at = end


@kernel
def fill_repeated(columns: Runs, picks: PickBlock) -> None:
    """Write the picks of each run, drawn with replacement, or all its edges if the fan-out is -1."""
    for number in range(columns.sizes[COUNT]):
        run = np.uintp(number)
        at, end, low = columns.offsets[run], columns.offsets[np.uintp(number + 1)], columns.starts[run]
        degree, state, repeats = columns.degrees[run], columns.states[run], fanout_of(columns, number) >= 0
        for place in range(end - at):
            picks.positions[np.uintp(at + place)] = low + (draw_below(state, place, degree) if repeats else place)


@kernel
def fill_latest(columns: Runs, picks: PickBlock) -> None:
    for number in range(columns.sizes[COUNT]):
        run = np.uintp(number)
        at, end = columns.offsets[run], columns.offsets[np.uintp(number + 1)]
        first = columns.starts[run] + columns.degrees[run] - (end - at)
        for place in range(end - at):
            picks.positions[np.uintp(at + place)] = first + place


@device_function
def pick_few(low, degree, count, state, out, at):
    """Choose `count` of `degree` edges, each set equally likely (Floyd's algorithm; Bentley, CACM 1987)."""
    for number in range(count):
        last = degree - count + number
        position = low + draw_below(state, number, last + 1)
        for chosen in range(at, at + number):
            # An edge that was picked before is replaced by the last one, which was out of range for earlier draws.
            if out[np.uintp(chosen)] == position:
                position = low + last
                break
        out[np.uintp(at + number)] = position


@device_function
def pick_many(low, degree, count, state, out, at, table):
    """Like `pick_few`, with the picks in a hash table."""
    # For large fan-outs: with comparisons of all pairs, mini-batches take 1.3 times as long with a fan-out of 64, and
    # 1.75 times with 200 (ogbn-products shaped graph).
    for number in range(count):
        last = degree - count + number
        position = low + draw_below(state, number, last + 1)
        slot = find_key(table, table.size, position)
        if table[slot] == position:
            # As in `pick_few`: the last edge can't be among the picks.
            position = low + last
            slot = find_key(table, table.size, position)
        table[slot] = position
        out[np.uintp(at + number)] = position
    table[:] = -1
