"""Random draws for kernels, equal to those of `ops/random.py`."""

import numpy as np

from graphfeed.ops import random
from graphfeed.ops.cpu.jit import device_function, multiply_high

GOLDEN = np.uint64(random.GOLDEN)
NODE = np.uint64(random.NODE)
EDGE_TYPE = np.uint64(random.EDGE_TYPE)
TIME = np.uint64(random.TIME)
SWITCH = np.uint64(random.SWITCH)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
UPPER = np.uint64(random.UPPER)
LAST = np.uint32(random.LAST)
HALF = np.uint64(32)


@device_function
def mix(value):
    # Bijective: each step is invertible.
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))


@device_function
def tree_key(key, tree):
    return mix(key ^ mix(np.uint64(tree) + GOLDEN))


@device_function
def node_state(key, node):
    return mix(key ^ (np.uint64(node) * NODE))


@device_function
def time_state(state, time):
    return mix(state ^ (np.uint64(time) * TIME))


@device_function
def type_state(state, edge_type):
    return mix(state + (np.uint64(edge_type) + np.uint64(1)) * EDGE_TYPE)


@device_function
def high_bits(key, node):
    """Return the upper 32 bits of a node's variate as uint64. The key must be mixed already."""
    bits = np.uint32((np.uint64(node) ^ key) + (np.uint64(node) >> HALF) * UPPER)
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * (np.uint32(key >> HALF) | np.uint32(1)))
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * LAST)
    return np.uint64(np.uint32(bits ^ (bits >> np.uint32(15))))


@device_function
def variate(first, second, switch_threshold, node):
    """Return the 64 random bits of a neighbour, the same in all columns (see `ops.random.variate`)."""
    key = first
    # Usually only one key is in use, and no hash is needed to choose.
    if switch_threshold >> HALF != 0 and high_bits(SWITCH, node) < switch_threshold >> HALF:
        key = second
    return high_bits(mix(key), node) << HALF | np.uint64(np.uint32(mix(key ^ (np.uint64(node) * NODE))))


@device_function
def draw_bits(state, number):
    return mix(state + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@device_function
def draw_below(state, number, bound):
    # In the range 0 to bound - 1: the high half of a 128-bit product.
    return np.int64(multiply_high(draw_bits(state, number), np.uint64(bound)))
