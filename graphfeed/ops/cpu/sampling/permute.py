"""Kernels of a keyed permutation."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt64, UInt64s, kernel
from graphfeed.ops.cpu.random import mix, node_state

ROUNDS = 6


@kernel
def hash_places(key: UInt64, out: UInt64s) -> None:
    for place in range(out.size):
        out[place] = node_state(key, place)


@kernel
def permute(start: int, size: int, rounds: UInt64s, half_bits: int, walking: Int64s, out: Int64s) -> None:
    """Write the items at positions `start`, `start + 1`, ... of the permutation."""
    # All values pass the network together, and those that are not below `size` pass it again. So there is no branch
    # that can't be predicted, and the products of several values overlap.
    shift = np.uint64(half_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for number in range(out.size):
        out[number] = start + number
        walking[number] = number
    left_over = out.size
    while left_over > 0:
        outside = 0
        for place in range(left_over):
            number = walking[place]
            value = np.uint64(out[number])
            left, right = value >> shift, value & mask
            # A Feistel network: each round is bijective for any hash, and so is their composition.
            for key in rounds:
                left, right = right, left ^ (mix(key ^ right) & mask)
            value = (left << shift) | right
            out[number] = np.int64(value)
            walking[outside] = number
            outside += np.int64(value >= np.uint64(size))
        left_over = outside
