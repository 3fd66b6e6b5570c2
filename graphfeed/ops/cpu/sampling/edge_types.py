"""Splits sampled edges by edge type: the parts that kernels of one hop and of all hops share."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, prefetch

FEW = 32
"""Up to this many picks of a column are sorted by insertion."""


@device_function
def sort_picks(offsets, picks):
    """Sort the picks of each column in place."""
    for column in range(offsets.size - 1):
        low, high = offsets[column], offsets[column + 1]
        if high - low > FEW:
            picks[low:high].sort()
            continue
        for place in range(low + 1, high):
            edge, at = picks[np.uintp(place)], place
            while at > low and picks[np.uintp(at - 1)] > edge:
                picks[np.uintp(at)] = picks[np.uintp(at - 1)]
                at -= 1
            picks[np.uintp(at)] = edge


@device_function
def count_kinds(types, picks, kinds, counts):
    """Read the edge type of each pick, and count the picks of each type; `counts` is 0 before."""
    last = picks.size - 1
    for place in range(picks.size):
        prefetch(types, np.intp(picks[np.uintp(min(place + AHEAD, last))]))
        kind = np.uintp(types[np.uintp(picks[np.uintp(place)])])
        kinds[np.uintp(place)] = kind
        counts[kind] += 1


@device_function
def list_kinds(destinations, wanted, num_types):
    """Return the wanted edge types by destination node type, and where each node type's begin."""
    listed, begins = np.empty(destinations.size, np.int64), np.zeros(num_types + 1, np.int64)
    count = 0
    for kind in range(num_types):
        for edge_type in range(destinations.size):
            if destinations[edge_type] == kind and wanted[edge_type]:
                listed[count] = edge_type
                count += 1
        begins[kind + 1] = count
    return listed, begins


@device_function
def split_picks(picks, kinds, offsets, column_starts, listed, begins, places, starts, indptr, grouped):
    """Write each pick to the part of its edge type, and the column starts of each type; all in one pass.

    Args:
        picks: Sampled edges, column by column, ascending in each.
        kinds: Their edge types.
        offsets: Where each column's picks start.
        column_starts: Where the columns of each node type start.
        listed: Edge types by destination node type: those that get column starts.
        begins: Where each node type's begin in `listed`.
        places: Where the column starts of each edge type begin in `indptr`.
        starts: Where the picks of each edge type begin in `grouped`.
        indptr: Written.
        grouped: Written.
    """
    cursors = starts.copy()
    for kind in range(column_starts.size - 1):
        first, low, high = column_starts[kind], begins[kind], begins[kind + 1]
        for number in range(low, high):
            indptr[places[listed[number]]] = 0
        for column in range(first, column_starts[kind + 1]):
            for place in range(offsets[column], offsets[column + 1]):
                edge_type = np.uintp(kinds[np.uintp(place)])
                at = cursors[edge_type]
                grouped[np.uintp(at)] = picks[np.uintp(place)]
                cursors[edge_type] = at + 1
            for number in range(low, high):
                edge_type = np.uintp(listed[np.uintp(number)])
                row = places[edge_type] + column - first + 1
                indptr[np.uintp(row)] = cursors[edge_type] - starts[edge_type]
