"""Kernel of a greedy assignment of nodes to parts, one node after the other."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, device_function, kernel, prefetch


@kernel
def place_nodes(
    indptr: Int64s,
    indices: Ids,
    first: int,
    limit: int,
    parts: Int32s,
    tree: Int64s,
    items: Int64s,
    item_limit: int,
    item_tree: Int64s,
    counts: Int64s,
    met: Int32s,
) -> int:
    """Give each node of a range the part where most of its neighbours are.

    Args:
        indptr: The column starts of the nodes of the range.
        indices: The source of each edge of the whole graph.
        first: The first node of the range.
        limit: How many nodes a part may have.
        parts: The part of each node of the graph, or -1. Those of the range are written.
        tree: The loads of the parts, behind the minima of pairs of them, of pairs of these, and so on from index 1.
            Written.
        items: How many items each node of the range has; empty without items.
        item_limit: How many items a part may have.
        item_tree: The items of the parts, laid out as `tree`. Written.
        counts: Scratch: a zero per part.
        met: Scratch, as long: the parts in which a node has neighbours.

    Returns:
        How many nodes moved; or, below 0, -1 minus the place of a source that is no node.
    """
    loads, item_loads, moved = tree[tree.size // 2 :], item_tree[item_tree.size // 2 :], 0
    for column in range(indptr.size - 1):
        node, size, last = first + column, 0, indptr[column + 1] - 1
        before = parts[node]
        weight = items[column] if items.size > 0 else np.int64(0)
        if before >= 0:
            set_load(tree, before, loads[before] - 1)
            if weight > 0:
                set_load(item_tree, before, item_loads[before] - weight)
        for edge in range(indptr[column], last + 1):
            source = indices[edge]
            prefetch(parts, indices[min(edge + AHEAD, last)])
            if source < 0 or source >= parts.size:
                return -1 - edge
            part = parts[source]
            if part >= 0 and loads[part] < limit and (weight == 0 or item_loads[part] + weight <= item_limit):
                if counts[part] == 0:
                    met[size] = part
                    size += 1
                counts[part] += 1
        chosen, most = np.int64(-1), np.int64(0)
        for place in range(size):
            part = np.int64(met[place])
            # Neighbours times the room that is left: full parts draw less, so that all fill alike.
            room = item_limit - item_loads[part] if weight > 0 else limit - loads[part]
            score = counts[part] * room
            if score > most or (score == most and part < chosen):
                chosen, most = part, score
            counts[part] = 0
        if chosen < 0:
            chosen = emptiest(item_tree) if weight > 0 else emptiest(tree)
        set_load(tree, chosen, loads[chosen] + 1)
        if weight > 0:
            set_load(item_tree, chosen, item_loads[chosen] + weight)
        moved += before != chosen
        parts[node] = chosen
    return moved


@device_function
def set_load(tree, part, load):
    """Set the load of a part, and the minima above it, in a complete binary tree whose leaves are the loads."""
    at = tree.size // 2 + part
    tree[at] = load
    while at > 1:
        least = min(tree[at], tree[at ^ 1])
        at >>= 1
        # The nodes above have seen no change.
        if tree[at] == least:
            break
        tree[at] = least


@device_function
def emptiest(tree):
    """Return the part with the least load; of several, the first."""
    at = 1
    while at < tree.size // 2:
        at *= 2
        at += tree[at + 1] < tree[at]
    return at - tree.size // 2
