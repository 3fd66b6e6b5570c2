"""The kernel that adds a number to all values of a column."""

from graphfeed.ops.cpu.jit import Ids, Int64s, kernel


@kernel
def shift_columns(offsets: Int64s, shifts: Int64s, values: Int64s, out: Ids) -> None:
    for column in range(shifts.size):
        for place in range(offsets[column], offsets[column + 1]):
            out[place] = values[place] + shifts[column]
