"""The draws of `ops/random.py` inside kernels."""

import numpy as np

from graphfeed.ops import random
from graphfeed.ops.cpu.jit import always_inline, multiply_high

GOLDEN = np.uint64(random.GOLDEN)
NODE = np.uint64(random.NODE)
EDGE_TYPE = np.uint64(random.EDGE_TYPE)
TIME = np.uint64(random.TIME)
TURN = np.uint64(random.TURN)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
UPPER = np.uint64(random.UPPER)
LAST = np.uint32(random.LAST)
HALF = np.uint64(32)


@always_inline
def mix(value):
    """Scramble 64 bits, one to one."""
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))


@always_inline
def node_state(key, node):
    """Fold a node id into the key of a hop."""
    return mix(key ^ (np.uint64(node) * NODE))


@always_inline
def timed_state(key, node, time):
    """Fold a node id into the key of a hop, and the time at which the node is looked at."""
    return mix(node_state(key, node) ^ (np.uint64(time) * TIME))


@always_inline
def typed_state(state, edge_type):
    """Set the draws of one edge type of a node apart from those of the others."""
    return mix(state + (np.uint64(edge_type) + np.uint64(1)) * EDGE_TYPE)


@always_inline
def short_bits(key, node):
    """Return 32 random bits of a node, as a uint64."""
    bits = np.uint32((np.uint64(node) ^ key) + (np.uint64(node) >> HALF) * UPPER)
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * (np.uint32(key >> HALF) | np.uint32(1)))
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * LAST)
    return np.uint64(np.uint32(bits ^ (bits >> np.uint32(15))))


@always_inline
def shared_state(first, second, share, node):
    """Return the bits of a neighbour that all columns share, under the second key for a share of the nodes."""
    key = first
    if share >> HALF != 0 and short_bits(TURN, node) < share >> HALF:
        key = second
    return short_bits(mix(key), node) << HALF | np.uint64(np.uint32(mix(key ^ (np.uint64(node) * NODE))))


@always_inline
def draw_bits(state, number):
    """Return the 64 bits of draw `number` of a state."""
    return mix(state + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@always_inline
def draw_below(state, number, bound):
    """Return draw `number` of a state as an int64 in `0 .. bound - 1`: the high half of a 128-bit product."""
    return np.int64(multiply_high(draw_bits(state, number), np.uint64(bound)))
