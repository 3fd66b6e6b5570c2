"""Kernel that walks at random."""

import numpy as np

from graphfeed.ops.cpu.jit import kernel
from graphfeed.ops.cpu.random import draw_below, node_state


@kernel
def random_walks(indptr, indices, starts, key, out):
    """Write the nodes of each walk, shape (walks, steps + 1); one that can't go on stays where it is."""
    for walk in range(out.shape[0]):
        state = node_state(key, walk)
        node = np.int64(starts[walk])
        out[walk, 0] = node
        for step in range(out.shape[1] - 1):
            low = np.int64(indptr[node])
            degree = np.int64(indptr[node + 1]) - low
            if degree > 0:
                node = np.int64(indices[low + draw_below(state, step, degree)])
            out[walk, step + 1] = node
