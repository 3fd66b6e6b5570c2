"""The kernel that writes the edges of columns by their two ends."""

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, kernel


@kernel
def join_columns(indptr: Int64s, indices: Ids, ids: Int64s, out: Int64Matrix, place: int) -> int:
    """Write row, column and id of each edge from a place on; return the place behind them, or -1 if they are wrong."""
    if indptr.size == 0 or indptr[0] != 0 or indptr[indptr.size - 1] != indices.size:
        return -1
    if place + indices.size > out.shape[1]:
        return -1
    for column in range(indptr.size - 1):
        if indptr[column + 1] < indptr[column] or indptr[column + 1] > indices.size:
            return -1
        for edge in range(indptr[column], indptr[column + 1]):
            out[0, place + edge] = indices[edge]
            out[1, place + edge] = column
            out[2, place + edge] = ids[edge]
    return place + indices.size
