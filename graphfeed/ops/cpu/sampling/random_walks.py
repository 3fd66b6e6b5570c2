"""Kernel of random walks."""

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, UInt64, kernel
from graphfeed.ops.cpu.random import draw_below, node_state


@kernel
def random_walks(indptr: Int64s, indices: Ids, starts: Int64s, key: UInt64, first_step: int, out: Int64Matrix) -> bool:
    """Write the nodes of each walk. A walk stays at a node without edges. Returns False if the graph is invalid."""
    for walk in range(out.shape[0]):
        state = node_state(key, walk)
        node = starts[walk]
        out[walk, 0] = node
        for step in range(out.shape[1] - 1):
            low, high = indptr[node], indptr[node + 1]
            if not 0 <= low <= high <= indices.size:
                return False
            if high > low:
                node = indices[low + draw_below(state, first_step + step, high - low)]
                if not 0 <= node < indptr.size - 1:
                    return False
            out[walk, step + 1] = node
    return True
