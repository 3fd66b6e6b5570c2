"""Kernel of a greedy assignment of nodes to parts, block by block."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, device_function, kernel, prefetch

FULL = np.int64(np.iinfo(np.int64).max)
"""What a part that is not to be found has in the tree of loads."""


class Scratch(NamedTuple):
    """What is known of a block while its nodes are placed."""

    counts: Int64s
    """A zero per part."""
    known: Int32s
    """For each node of the block the parts where it has neighbours, and how much it wants to each."""
    scores: Int64s
    ends: Int64s
    """Where those of each node end."""
    waiting: Int64s
    """The nodes that wait, and the part of each node of the block."""
    found: Int64s
    wanted: Int64s
    """The part that each node wants to most, and how much."""
    most: Int64s


@kernel
def place_nodes(
    indptr: Int64s, indices: Ids, first: int, step: int, limit: int, parts: Int32s, tree: Int64s, scratch: Scratch
) -> int:
    """Give each node of a range the part where most of its neighbours are.

    Args:
        indptr: The column starts of the nodes of the range.
        indices: The source of each edge of the whole graph.
        first: The first node of the range.
        step: How many nodes a block has.
        limit: How many nodes a part may have.
        parts: The part of each node of the graph, or -1. Those of the range are written.
        tree: The loads of the parts, behind the minima of pairs of them, of pairs of these, and so on from index 1.
            Written.
        scratch: As long as a block needs.

    Returns:
        How many nodes moved; or, below 0, -1 minus the place of a source that is no node.
    """
    loads, moved = tree[tree.size // 2 :], 0
    for block in range(-(-(indptr.size - 1) // step)):
        start, stop = block * step, min((block + 1) * step, indptr.size - 1)
        for node in range(first + start, first + stop):
            if parts[node] >= 0:
                set_load(tree, parts[node], loads[parts[node]] - 1)
        own = scratch.found[: stop - start]
        bad = score_parts(indptr[start : stop + 1], indices, parts, limit, loads, scratch)
        if bad >= 0:
            return -1 - bad
        place_wanting(limit, tree, own, scratch)
        place_others(tree, own, scratch)
        for node in range(own.size):
            moved += parts[first + start + node] != own[node]
            parts[first + start + node] = own[node]
    return moved


@device_function
def set_load(tree, part, load):
    """Set the load of a part, and the minima above it, in a complete binary tree whose leaves are the loads."""
    at = tree.size // 2 + part
    tree[at] = load
    while at > 1:
        least = min(tree[at], tree[at ^ 1])
        at >>= 1
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


@device_function
def comes_before(parts, scores, one, other):
    """Tell whether a node comes before another: by part, the higher score first, then the lower place."""
    if parts[one] != parts[other]:
        return parts[one] < parts[other]
    if scores[one] != scores[other]:
        return scores[one] > scores[other]
    return one < other


@device_function
def sort_places(order, size, parts, scores):
    """Sort the first places of `order` by `comes_before`, by a heap."""
    for end in range(2 * size - 1, 0, -1):
        # At first, the lower half goes down into the heap; then the last of the heap comes up, again and again.
        root, last = (end - size, size) if end >= size else (0, end)
        if end < size:
            order[0], order[end] = order[end], order[0]
        while True:
            child = 2 * root + 1
            if child >= last:
                break
            if child + 1 < last and comes_before(parts, scores, order[child], order[child + 1]):
                child += 1
            if not comes_before(parts, scores, order[root], order[child]):
                break
            order[root], order[child] = order[child], order[root]
            root = child


@device_function
def score_parts(indptr, indices, parts, limit, loads, scratch):
    """Write for each node of a block the parts with neighbours and room, and how much it wants to each.

    Returns:
        -1, or the place of a source that is no node.
    """
    known, scores, counts = scratch.known, scratch.scores, scratch.counts
    filled = 0
    for node in range(indptr.size - 1):
        start = filled
        last = indptr[node + 1] - 1
        for edge in range(indptr[node], indptr[node + 1]):
            source = indices[edge]
            prefetch(parts, indices[min(edge + AHEAD, last)])
            if source < 0 or source >= parts.size:
                return edge
            part = parts[source]
            if part >= 0 and loads[part] < limit:
                if counts[part] == 0:
                    known[filled] = part
                    filled += 1
                counts[part] += 1
        for place in range(start, filled):
            part = known[place]
            scores[place] = counts[part] * (limit - loads[part])
            counts[part] = 0
        scratch.ends[node + 1] = filled
    return -1


@device_function
def choose(node, limit, loads, scratch):
    """Write which part with room a node wants to most, and how much; the part is -1 if there is none."""
    wanted, most = np.int64(-1), np.int64(0)
    for place in range(scratch.ends[node], scratch.ends[node + 1]):
        part, score = np.int64(scratch.known[place]), scratch.scores[place]
        if loads[part] < limit and (score > most or (score == most and part < wanted)):
            wanted, most = part, score
    scratch.wanted[node], scratch.most[node] = wanted, most


@device_function
def place_wanting(limit, tree, found, scratch):
    """Place the nodes of a block in parts that have their neighbours, those that want it most first."""
    loads, counts, ends = tree[tree.size // 2 :], scratch.counts, scratch.ends
    waiting, wanted = scratch.waiting, scratch.wanted
    size = 0
    for node in range(found.size):
        found[node] = -1
        if ends[node + 1] > ends[node]:
            waiting[size] = node
            size += 1
    while size > 0:
        kept = 0
        for place in range(size):
            node = waiting[place]
            choose(node, limit, loads, scratch)
            if wanted[node] >= 0:
                counts[wanted[node]] += 1
                waiting[kept] = node
                kept += 1
        size, kept = kept, 0
        for place in range(size):
            node = waiting[place]
            part = wanted[node]
            # Each node that is placed lowers both sides by one.
            if counts[part] <= limit - loads[part]:
                counts[part] -= 1
                found[node] = part
                set_load(tree, part, loads[part] + 1)
            else:
                waiting[kept] = node
                kept += 1
        size, kept = kept, 0
        sort_places(waiting, size, wanted, scratch.most)
        for place in range(size):
            node = waiting[place]
            part = wanted[node]
            counts[part] = 0
            if loads[part] < limit:
                found[node] = part
                set_load(tree, part, loads[part] + 1)
            else:
                waiting[kept] = node
                kept += 1
        size = kept


@device_function
def place_others(tree, found, scratch):
    """Place the nodes that have no part yet, so that the emptiest parts are filled to one level."""
    taken, level, order = scratch.wanted, scratch.most, scratch.waiting
    missing = 0
    for node in range(found.size):
        missing += found[node] < 0
    size = min(missing, tree.size // 2)
    filled, total = 0, 0
    for place in range(size):
        part = emptiest(tree)
        load = tree[tree.size // 2 + part]
        # So many nodes it takes to fill all parts before this one up to it.
        if load == FULL or load * place - total > missing:
            break
        taken[place], level[place], order[place] = part, load, place
        total += load
        filled += 1
        set_load(tree, part, FULL)
    if filled == 0:
        return
    up_to, rest = (missing + total) // filled, (missing + total) % filled
    for place in range(filled):
        gets = up_to - level[place] + np.int64(place < rest)
        set_load(tree, taken[place], level[place] + gets)
        level[place] = gets
    sort_places(order, filled, taken, level)
    place = 0
    for node in range(found.size):
        if found[node] < 0:
            while level[order[place]] == 0:
                place += 1
            found[node] = taken[order[place]]
            level[order[place]] -= 1
