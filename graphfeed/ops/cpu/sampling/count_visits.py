"""Kernel that counts visits of nodes, and the list of the most frequent ones."""

from graphfeed.ops.cpu.jit import Int64Matrix, Int64s, device_function, kernel


@kernel
def count_visits(visits: Int64Matrix, nodes: Int64Matrix, counts: Int64Matrix, sizes: Int64s) -> None:
    """Write the most frequent nodes of each row of visits, which ascend; -1 is not counted."""
    for row in range(visits.shape[0]):
        size, first = 0, 0
        for place in range(visits.shape[1]):
            if place + 1 < visits.shape[1] and visits[row, place + 1] == visits[row, place]:
                continue
            if visits[row, place] >= 0:
                size = insert_best(nodes, counts, row, size, visits[row, place], place + 1 - first)
            first = place + 1
        sizes[row] = size


@device_function
def insert_best(nodes, values, row, size, node, value):
    """Insert a node into a row by descending value, then by id, dropping the last if it is full; return its size."""
    place = size
    if size == nodes.shape[1]:
        place = size - 1
        if size == 0 or not is_better(node, value, nodes[row, place], values[row, place]):
            return size
    else:
        size += 1
    while place > 0 and is_better(node, value, nodes[row, place - 1], values[row, place - 1]):
        nodes[row, place], values[row, place] = nodes[row, place - 1], values[row, place - 1]
        place -= 1
    nodes[row, place], values[row, place] = node, value
    return size


@device_function
def is_better(node, value, other, other_value):
    return value > other_value or (value == other_value and node < other)
