"""Kernels that add the reverse of each edge."""

import numpy as np

from graphfeed.ops.cpu.jit import Int32s, Int64Matrix, Int64s, kernel


@kernel
def sort_mirrored(both: Int64s, bounds: Int64s, ends: Int64s, latest: Int32s, order: Int32s, places: Int32s) -> int:
    """Sort edges and their reverses by source, then by destination, without duplicates; return the number left out."""
    # `both` has all sources and then all destinations, which are the sources of the reverses. With these, a node has as
    # many outgoing as incoming edges, so its range is the same in both orders. `bounds` is all 0 at first, and becomes
    # the bounds of these ranges; `ends` becomes the ends of the remaining edges in the second order.
    count, total, left_out = both.size // 2, np.int64(0), np.int64(0)
    for place in range(both.size):
        bounds[np.uintp(both[np.uintp(place)] + 1)] += 1
    for node in range(ends.size):
        degree = bounds[node + 1]
        bounds[node + 1] = ends[node] = total
        latest[node] = -1
        total += degree
    for place in range(both.size):
        node = np.uintp(both[np.uintp(place)] + 1)
        order[np.uintp(bounds[node])] = place
        bounds[node] += 1
    for source in range(ends.size):
        for at in range(bounds[source], bounds[source + 1]):
            place = np.int64(order[np.uintp(at)])
            node = np.uintp(both[np.uintp(place + count if place < count else place - count)])
            # Duplicate pairs are adjacent; the first one is kept.
            if latest[node] == source:
                left_out += 1
                continue
            latest[node] = source
            places[np.uintp(ends[node])] = place
            ends[node] += 1
    return left_out


@kernel
def fill_mirrored(both: Int64s, ids: Int64s, bounds: Int64s, ends: Int64s, places: Int32s, out: Int64Matrix) -> None:
    """Write source, destination and id of each remaining edge."""
    at, count = np.int64(0), ids.size
    for node in range(ends.size):
        for number in range(bounds[node], ends[node]):
            place = np.int64(places[np.uintp(number)])
            out[0, np.uintp(at)], out[1, np.uintp(at)] = both[np.uintp(place)], node
            out[2, np.uintp(at)] = ids[np.uintp(place if place < count else place - count)]
            at += 1
