"""Kernel that builds the index of high-degree columns.

::

    columns, by degree     entries, by source node
    number 0: node 17      starts[4] -> | 0, place 905 | 2, place 31 |      node 4 is a source in columns 0 and 2
    number 1: node  5      starts[5] -> | 1, place   7 |                    node 5 is a source in column 1
    number 2: node 40      an entry: the column's number (32 bits) and the place in the column (32 bits)
"""

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64s, kernel, prefetch


@kernel
def build_high_degree_index(
    indptr: Int64s, indices: Ids, columns: Int64s, starts: Int64s, cursor: Int64s, entries: Int64s
) -> bool:
    """Write the entries of each node, column after column. Returns False if a source is out of range."""
    # `starts` is all 0 at first; the entries of node `i` are counted in `starts[i + 1]`.
    for column in columns:
        end = indptr[column + 1]
        for edge in range(indptr[column], end):
            prefetch(starts, indices[min(edge + AHEAD, end - 1)])
            if not 0 <= indices[edge] < starts.size - 1:
                return False
            starts[indices[edge] + 1] += 1
    for node in range(starts.size - 1):
        starts[node + 1] += starts[node]
        cursor[node] = starts[node]
    for number in range(columns.size):
        start, end = indptr[columns[number]], indptr[columns[number] + 1]
        for edge in range(start, end):
            # The cursor is the position of the entry, so it must be loaded before the entry can be prefetched.
            prefetch(cursor, indices[min(edge + 2 * AHEAD, end - 1)])
            prefetch(entries, cursor[indices[min(edge + AHEAD, end - 1)]])
            node = indices[edge]
            entries[cursor[node]] = (number << 32) | (edge - start)
            cursor[node] += 1
    return True
