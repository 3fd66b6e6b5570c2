"""Kernel that counts visits of nodes, and the list of the most frequent ones."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64Matrix, Int64s, device_function, kernel


@kernel
def count_visits(visits: Int64Matrix, top: int, starts: Int64s, nodes: Int64s, counts: Int64s) -> None:
    """Write the most frequent nodes of each row of visits, which ascend; -1 is not counted."""
    for row in range(visits.shape[0]):
        start, size, first = starts[row], 0, 0
        for place in range(visits.shape[1]):
            if place + 1 < visits.shape[1] and visits[row, place + 1] == visits[row, place]:
                continue
            if visits[row, place] >= 0:
                size = insert_best(nodes, counts, start, size, top, visits[row, place], place + 1 - first)
            first = place + 1
        sort_best(nodes, counts, start, size)
        starts[row + 1] = start + size


@device_function
def insert_best(nodes, values, start, size, top, node, value):
    """Insert a node into a heap that begins with the worst node, which is dropped if there are `top`.

    Returns the number of nodes. The better node has the larger value, then the smaller id.
    """
    if size < top:
        place = size
        while place > 0:
            above = (place - 1) >> 1
            if is_better(node, value, nodes[start + above], values[start + above]) != 0:
                break
            nodes[start + place], values[start + place] = nodes[start + above], values[start + above]
            place = above
        nodes[start + place], values[start + place] = node, value
        return size + 1
    if size > 0 and is_better(node, value, nodes[start], values[start]) != 0:
        sift_down(nodes, values, start, size, node, value)
    return size


@device_function
def sort_best(nodes, values, start, size):
    """Sort a heap, the best node first."""
    for last in range(size - 1, 0, -1):
        node, value = nodes[start + last], values[start + last]
        nodes[start + last], values[start + last] = nodes[start], values[start]
        sift_down(nodes, values, start, last, node, value)


@device_function
def sift_down(nodes, values, start, size, node, value):
    """Replace the first node of a heap."""
    place, below = 0, 1
    while below < size:
        # Without a branch, because it could not be predicted. A node alone is compared with itself.
        left, right = start + below, start + min(below + 1, size - 1)
        below += is_better(nodes[left], values[left], nodes[right], values[right])
        if is_better(nodes[start + below], values[start + below], node, value) != 0:
            break
        nodes[start + place], values[start + place] = nodes[start + below], values[start + below]
        place, below = below, 2 * below + 1
    nodes[start + place], values[start + place] = node, value


@device_function
def is_better(node, value, other, other_value):
    """Return 1 if the first node is better, else 0."""
    return np.int64((value > other_value) | ((value == other_value) & (node < other)))
