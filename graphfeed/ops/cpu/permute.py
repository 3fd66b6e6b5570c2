"""Kernels of the keyed permutation."""

import numpy as np

from graphfeed.ops.cpu.jit import kernel
from graphfeed.ops.cpu.random import mix, node_state

ROUNDS = 6


@kernel
def hash_places(key, out):
    """Write the hash of each place."""
    for place in range(out.size):
        out[place] = node_state(key, place)


@kernel
def permute(start, size, rounds, half_bits, out):
    """Write the items at places `start`, `start + 1`, ... of the permutation."""
    shift = np.uint64(half_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for number in range(out.size):
        value = np.uint64(start + number)
        while True:
            left, right = value >> shift, value & mask
            for key in rounds:
                left, right = right, left ^ (mix(key ^ right) & mask)
            value = (left << shift) | right
            if value < np.uint64(size):
                break
        out[number] = np.int64(value)
