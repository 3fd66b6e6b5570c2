"""Kernels that add the reverse of each edge."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64Matrix, Int64s, kernel

SHIFT = 32
"""A key has a node in its upper bits; below is the place of an edge, where the reverse of all come behind them."""
BELOW = (1 << SHIFT) - 1


@kernel
def sort_mirrored(sources: Int64s, destinations: Int64s, ends: Int64Matrix, by_source: Int64s, keys: Int64s) -> int:
    """Sort edges and their reverse by source, then by destination, each pair once; return how many are left out."""
    # With its reverse, a node has as many edges from it as to it, so both orders have their parts at the same places.
    # `ends` comes zeroed. Behind a 0, it gets the ends of parts: in the first order, and in the second without gaps.
    count, total, left_out = sources.size, np.int64(0), np.int64(0)
    for edge in range(count):
        ends[0, sources[np.uintp(edge)] + 1] += 1
        ends[0, destinations[np.uintp(edge)] + 1] += 1
    for node in range(1, ends.shape[1]):
        degree = ends[0, node]
        ends[0, node] = ends[1, node] = total
        total += degree
    for edge in range(count):
        node = sources[np.uintp(edge)] + 1
        by_source[np.uintp(ends[0, node])] = destinations[np.uintp(edge)] << SHIFT | edge
        ends[0, node] += 1
    for edge in range(count):
        node = destinations[np.uintp(edge)] + 1
        by_source[np.uintp(ends[0, node])] = sources[np.uintp(edge)] << SHIFT | count + edge
        ends[0, node] += 1
    for source in range(ends.shape[1] - 1):
        for place in range(ends[0, source], ends[0, source + 1]):
            node = (by_source[np.uintp(place)] >> SHIFT) + 1
            end = ends[1, node]
            # Of equal pairs, which come one after the other, the first one stays.
            if end > ends[0, node - 1] and keys[np.uintp(end - 1)] >> SHIFT == source:
                left_out += 1
                continue
            keys[np.uintp(end)] = source << SHIFT | by_source[np.uintp(place)] & BELOW
            ends[1, node] = end + 1
    return left_out


@kernel
def fill_mirrored(ends: Int64Matrix, keys: Int64s, ids: Int64s, out: Int64Matrix) -> None:
    """Write both ends and the id of each edge, by its key."""
    at, count = np.int64(0), ids.size
    for node in range(ends.shape[1] - 1):
        for place in range(ends[0, node], ends[1, node + 1]):
            key = keys[np.uintp(place)]
            edge = key & BELOW
            out[0, at], out[1, at] = key >> SHIFT, node
            out[2, at] = ids[np.uintp(edge if edge < count else edge - count)]
            at += 1
