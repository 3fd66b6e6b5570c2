"""Kernels of the cache policies: a hash table from key to node, and linked lists of nodes.

The sentinel of list `l` is node `keys.size + l`. A list's newest node is `older[sentinel]`, its oldest
`newer[sentinel]`.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch
from graphfeed.ops.rows.cache_policy import (
    CAPACITY,
    CLOCK,
    FREE,
    GHOST,
    GHOST_SIZE,
    GHOSTS,
    HAND,
    LISTS,
    LRU,
    MAIN,
    MAIN_SIZE,
    MAIN_TARGET,
    S3_FIFO,
    SMALL,
    SMALL_SIZE,
    SMALL_TARGET,
    SPARE,
)

HIGHEST_MARK = 3
"""S3-FIFO counts up to it."""
LIST_COUNT = len(LISTS)


@device_function
def home_of(table, key):
    """Return the place in the table where the search for a key starts."""
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & (table.size - 1)


@device_function
def find_node(table, keys, key):
    """Return the node of a key, or -1."""
    place = home_of(table, key)
    while table[place] >= 0 and keys[table[place]] != key:
        place = (place + 1) & (table.size - 1)
    return np.int64(table[place])


@device_function
def enter(table, keys, node, key):
    """Give a node a key that the table hasn't got."""
    keys[node] = key
    place = home_of(table, key)
    while table[place] >= 0:
        place = (place + 1) & (table.size - 1)
    table[place] = node


@device_function
def erase(table, keys, node):
    """Take a node out of the table, and move up what the gap would hide."""
    mask = table.size - 1
    gap = home_of(table, keys[node])
    while table[gap] != node:
        gap = (gap + 1) & mask
    place = (gap + 1) & mask
    while table[place] >= 0:
        home = home_of(table, keys[table[place]])
        if ((place - home) & mask) >= ((place - gap) & mask):
            table[gap] = table[place]
            gap = place
        place = (place + 1) & mask
    table[gap] = -1


@device_function
def unlink(newer, older, node):
    """Take a node out of its list."""
    newer[older[node]] = newer[node]
    older[newer[node]] = older[node]


@device_function
def push(newer, older, sentinel, node):
    """Make a node the newest of a list."""
    first = older[sentinel]
    newer[node] = sentinel
    older[node] = first
    newer[first] = node
    older[sentinel] = node


@device_function
def move(newer, older, sentinel, node):
    """Make a node of another list, or of the same, the newest of a list."""
    unlink(newer, older, node)
    push(newer, older, sentinel, node)


@device_function
def evict_main(table, keys, newer, older, marks, numbers):
    """S3-FIFO: free the oldest slot of the main queue that wasn't asked for; the others go round again."""
    main = keys.size + MAIN
    while numbers[MAIN_SIZE] > 0:
        node = newer[main]
        if marks[node] == 0:
            erase(table, keys, node)
            move(newer, older, keys.size + FREE, node)
            numbers[MAIN_SIZE] -= 1
            return
        marks[node] -= 1
        move(newer, older, main, node)


@device_function
def remember(table, keys, newer, older, numbers, key):
    """S3-FIFO: keep a key that has just lost its slot; the oldest of too many is forgotten."""
    if numbers[GHOSTS] == 0:
        return
    if numbers[GHOST_SIZE] == numbers[GHOSTS]:
        node = newer[keys.size + GHOST]
        erase(table, keys, node)
    else:
        node = newer[keys.size + SPARE]
        numbers[GHOST_SIZE] += 1
    enter(table, keys, node, key)
    move(newer, older, keys.size + GHOST, node)


@device_function
def evict_small(table, keys, newer, older, marks, numbers):
    """S3-FIFO: free the oldest slot of the small queue; what was asked for twice moves on to the main queue."""
    while numbers[SMALL_SIZE] > 0:
        node = newer[keys.size + SMALL]
        numbers[SMALL_SIZE] -= 1
        if marks[node] <= 1:
            key = keys[node]
            erase(table, keys, node)
            move(newer, older, keys.size + FREE, node)
            remember(table, keys, newer, older, numbers, key)
            return
        marks[node] = 0
        move(newer, older, keys.size + MAIN, node)
        numbers[MAIN_SIZE] += 1
        if numbers[MAIN_SIZE] > numbers[MAIN_TARGET]:
            evict_main(table, keys, newer, older, marks, numbers)


@device_function
def pick_victim(policy, newer, marks, numbers, main):
    """LRU, CLOCK and SIEVE: return the slot that goes, and move the hand on."""
    if policy == LRU:
        return np.int64(newer[main])
    hand = numbers[HAND]
    if policy == CLOCK:
        while marks[hand] > 0:
            marks[hand] = 0
            hand = (hand + 1) % numbers[CAPACITY]
        numbers[HAND] = (hand + 1) % numbers[CAPACITY]
        return hand
    if hand == main:
        hand = np.int64(newer[main])
    while marks[hand] > 0:
        marks[hand] = 0
        hand = np.int64(newer[hand])
        if hand == main:
            hand = np.int64(newer[main])
    numbers[HAND] = newer[hand]
    return hand


@device_function
def evict(policy, table, keys, newer, older, marks, numbers):
    """Free a slot or more."""
    if policy != S3_FIFO:
        node = pick_victim(policy, newer, marks, numbers, keys.size + MAIN)
        erase(table, keys, node)
        move(newer, older, keys.size + FREE, node)
    elif numbers[SMALL_SIZE] >= numbers[SMALL_TARGET]:
        evict_small(table, keys, newer, older, marks, numbers)
    else:
        evict_main(table, keys, newer, older, marks, numbers)


@device_function
def choose_list(policy, table, keys, newer, older, numbers, key):
    """Return the list where a new key starts: S3-FIFO puts it in the main queue if it remembers it."""
    if policy != S3_FIFO:
        return MAIN
    ghost = find_node(table, keys, key)
    if ghost < 0:
        numbers[SMALL_SIZE] += 1
        return SMALL
    erase(table, keys, ghost)
    move(newer, older, keys.size + SPARE, ghost)
    numbers[GHOST_SIZE] -= 1
    numbers[MAIN_SIZE] += 1
    return MAIN


@device_function
def fetch_ahead(table, keys, wanted, row):
    """Prefetch the table for a key that comes in a while, and the key to compare with for one that comes soon."""
    last = wanted.size - 1
    prefetch(table, np.intp(home_of(table, wanted[min(row + 2 * AHEAD, last)])))
    node = table[home_of(table, wanted[min(row + AHEAD, last)])]
    prefetch(keys, np.intp(max(node, 0)))


@kernel
def clear(table, newer, older, marks, numbers):
    """Empty all lists but those of free slots and spare ghosts, which get every node."""
    nodes = newer.size - LIST_COUNT
    table[:] = -1
    marks[:] = 0
    numbers[SMALL_SIZE] = numbers[MAIN_SIZE] = numbers[GHOST_SIZE] = numbers[HAND] = 0
    for sentinel in range(nodes, nodes + LIST_COUNT):
        newer[sentinel] = older[sentinel] = sentinel
    for node in range(nodes):
        push(newer, older, nodes + (FREE if node < numbers[CAPACITY] else SPARE), node)


@kernel
def find_keys(policy, table, keys, newer, older, marks, numbers, wanted, places, slots, missing):
    """Look `wanted` up and mark what is there; return the number of hits.

    Args:
        policy: Which policy, as a number.
        table: See `PolicyState`, as the five that follow.
        keys: The key of each node.
        newer: Links of the lists.
        older: Links of the lists.
        marks: Counted up, or set.
        numbers: Sizes and the hand.
        wanted: Keys.
        places: Written: positions of the hits.
        slots: Written: their slots.
        missing: Written: positions of the misses.
    """
    highest = HIGHEST_MARK if policy == S3_FIFO else 1
    hits = 0
    for row in range(wanted.size):
        fetch_ahead(table, keys, wanted, row)
        node = find_node(table, keys, wanted[row])
        if node < 0 or node >= numbers[CAPACITY]:
            missing[row - hits] = row
            continue
        if policy == LRU:
            move(newer, older, keys.size + MAIN, node)
        elif marks[node] < highest:
            marks[node] += 1
        places[hits] = row
        slots[hits] = node
        hits += 1
    return hits


@kernel
def replace_keys(policy, table, keys, newer, older, marks, numbers, wanted, slots):
    """Give each of `wanted` a slot, in order; -1 for all that come after as many new ones as there are slots.

    Args:
        policy: Which policy, as a number.
        table: See `PolicyState`, as the five that follow.
        keys: The key of each node.
        newer: Links of the lists.
        older: Links of the lists.
        marks: New ones start at 0.
        numbers: Sizes and the hand.
        wanted: Keys.
        slots: Written.
    """
    room = numbers[CAPACITY]
    free = keys.size + FREE
    for row in range(wanted.size):
        fetch_ahead(table, keys, wanted, row)
        node = find_node(table, keys, wanted[row])
        if node >= 0 and node < numbers[CAPACITY]:
            slots[row] = node
            continue
        if room == 0:
            slots[row] = -1
            continue
        room -= 1
        while newer[free] == free:
            evict(policy, table, keys, newer, older, marks, numbers)
        start = choose_list(policy, table, keys, newer, older, numbers, wanted[row])
        node = np.int64(newer[free])
        enter(table, keys, node, wanted[row])
        marks[node] = 0
        move(newer, older, keys.size + start, node)
        slots[row] = node
