"""Kernel that marks the edges of columns that are not in the same columns of an earlier list."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, kernel
from graphfeed.ops.cpu.search import find_entry

FEW = 256
"""Up to this many pairs of ids are compared one by one, which is five times as fast as a hash table."""


@kernel
def clear_marks(
    before: Int64s, ids_before: Int64s, indptr: Int64s, ids: Int64s, table: Int64s, marks: UInt8s
) -> bool:  # fmt: skip
    """Clear the mark of each edge that an earlier list has in the same column; return False if `indptr` is invalid."""
    # The earlier list has at most as many columns.
    for column in range(before.size - 1):
        low, high = before[column], before[column + 1]
        begin, end = indptr[column], indptr[column + 1]
        if low < 0 or high < low or high > ids_before.size or begin < 0 or end < begin or end > marks.size:
            return False
        if (high - low) * (end - begin) <= FEW:
            for edge in range(begin, end):
                for other in range(low, high):
                    if ids_before[other] == ids[edge]:
                        marks[edge] = 0
            continue
        # The table is all -1 between columns, and at most half full.
        size = 2
        while size < 2 * (high - low):
            size *= 2
        own = table[:size]
        for other in range(low, high):
            own[find_entry(own, ids_before, ids_before[other])] = other
        for edge in range(begin, end):
            if own[find_entry(own, ids_before, ids[edge])] >= 0:
                marks[edge] = 0
        own[:] = -1
    return True
