"""Kernel that samples negative pairs uniformly."""

from graphfeed.ops.cpu.jit import IdPairs, UInt64, kernel
from graphfeed.ops.cpu.random import draw_below, node_state


@kernel
def sample_negatives(pairs: IdPairs, negative_ratio: int, num_destinations: int, key: UInt64, out: IdPairs) -> None:
    count = pairs.shape[0]
    for row in range(count):
        out[row, 0] = pairs[row, 0]
        out[row, 1] = pairs[row, 1]
        for copy in range(negative_ratio):
            place = row * negative_ratio + copy
            out[count + place, 0] = pairs[row, 0]
            out[count + place, 1] = draw_below(node_state(key, place), 0, num_destinations)
