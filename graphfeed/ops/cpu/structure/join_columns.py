"""The kernel that writes the edges of columns by their two ends."""

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, UInt8s, kernel


@kernel
def join_columns(indptr: Int64s, indices: Ids, ids: Int64s, marks: UInt8s, out: Int64Matrix, place: int) -> int:
    """Write row, column and id of each edge from a place on; return the place behind them, or -1 if they are wrong."""
    if indptr.size == 0 or indptr[0] != 0 or indptr[indptr.size - 1] != indices.size:
        return -1
    # Of the first edges, those whose mark is 0 are left out.
    kept = indices.size
    for edge in range(marks.size):
        kept -= marks[edge] == 0
    if place + kept > out.shape[1]:
        return -1
    for column in range(indptr.size - 1):
        if indptr[column + 1] < indptr[column] or indptr[column + 1] > indices.size:
            return -1
        for edge in range(indptr[column], indptr[column + 1]):
            if edge < marks.size and marks[edge] == 0:
                place -= 1  # all behind it move up
                continue
            out[0, place + edge] = indices[edge]
            out[1, place + edge] = column
            out[2, place + edge] = ids[edge]
    return place + indices.size
