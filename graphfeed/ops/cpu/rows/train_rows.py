"""Kernels that draw the first rows of a table, and update rows by their gradients."""

import numpy as np

from graphfeed.ops.cpu.jit import (
    AHEAD,
    Float64s,
    Ids,
    Int64s,
    UInt64,
    Weights,
    kernel,
    prefetch,
    square_root,
)
from graphfeed.ops.cpu.random import draw_bits, node_state
from graphfeed.ops.cpu.rows.decode import fetch_ahead
from graphfeed.ops.cpu.search import find_entry, first_slot

SIGNED = 1 << 23
"""A draw has 24 bits: a number from -SIGNED to SIGNED - 1."""


@kernel
def draw_rows(rows: Weights, ids: Ids, key: UInt64, unit: Float64s) -> None:
    """Fill the rows of ids: draws by key, id and column, times `unit`."""
    size = rows.size // ids.size
    for row in range(ids.size):
        state = node_state(key, np.int64(ids[np.uintp(row)]))
        for column in range(size):
            number = np.int64(draw_bits(state, column) >> np.uint64(40)) - SIGNED
            rows[np.uintp(row * size + column)] = np.float64(number) * unit[0]


@kernel
def find_firsts(ids: Ids, table: Int64s, firsts: Int64s) -> int:
    """Write the first position of each id, and return the number of repeated ones; the hash table is all -1."""
    last, repeated = ids.size - 1, 0
    for place in range(ids.size):
        prefetch(table, first_slot(table.size, ids[np.uintp(min(place + AHEAD, last))]))
        slot = find_entry(table, ids, ids[np.uintp(place)])
        first = table[np.uintp(slot)]
        if first < 0:
            first = place
            table[np.uintp(slot)] = place
        else:
            repeated += 1
        firsts[np.uintp(place)] = first
    return repeated


@kernel
def add_repeated(firsts: Int64s, gradients: Weights, counts: Weights, one: Weights, mean: bool) -> None:
    """Add the gradients of repeated ids, in their order, to those of the first one; or average them there."""
    size = gradients.size // firsts.size
    for place in range(firsts.size):
        first = firsts[np.uintp(place)]
        counts[np.uintp(first)] += one[0]
        if first != place:
            for column in range(size):
                gradients[np.uintp(first * size + column)] += gradients[np.uintp(place * size + column)]
    if mean:
        for place in range(firsts.size):
            if counts[np.uintp(place)] > one[0]:
                for column in range(size):
                    gradients[np.uintp(place * size + column)] /= counts[np.uintp(place)]


@kernel
def step_sgd(
    rows: Weights,
    state: Weights,  # noqa: ARG001 - all rules have the same arguments
    ids: Ids,
    firsts: Int64s,
    gradients: Weights,
    factors: Weights,
) -> None:
    """Subtract the gradient of each id from its row, times the rate `factors[0]`."""
    size = gradients.size // ids.size
    for row in range(ids.size):
        fetch_ahead(rows, ids, row, size, rows.itemsize)
        if firsts[np.uintp(row)] == row:
            start, to = np.uintp(row * size), np.uintp(np.int64(ids[np.uintp(row)]) * size)
            for column in range(size):
                at = np.uintp(column)
                rows[to + at] -= factors[0] * gradients[start + at]


@kernel
def step_rowwise(rows: Weights, state: Weights, ids: Ids, firsts: Int64s, gradients: Weights, factors: Weights) -> None:
    """Adagrad with one sum per row. The factors are the rate, epsilon and the size of a row."""
    size = gradients.size // ids.size
    for row in range(ids.size):
        fetch_ahead(rows, ids, row, size, rows.itemsize)
        fetch_ahead(state, ids, row, 1, state.itemsize)
        if firsts[np.uintp(row)] == row:
            start, node = np.uintp(row * size), np.int64(ids[np.uintp(row)])
            to = np.uintp(node * size)
            # Four sums, since each addition waits for the one before.
            first = second = third = fourth = factors[3]
            whole = size // 4 * 4
            for column in range(0, whole, 4):
                at = start + np.uintp(column)
                first += gradients[at] * gradients[at]
                second += gradients[at + np.uintp(1)] * gradients[at + np.uintp(1)]
                third += gradients[at + np.uintp(2)] * gradients[at + np.uintp(2)]
                fourth += gradients[at + np.uintp(3)] * gradients[at + np.uintp(3)]
            for column in range(whole, size):
                at = start + np.uintp(column)
                first += gradients[at] * gradients[at]
            total = state[np.uintp(node)] + ((first + second) + (third + fourth)) / factors[2]
            state[np.uintp(node)] = total
            rate = factors[0] / (square_root(total) + factors[1])
            for column in range(size):
                at = np.uintp(column)
                rows[to + at] -= rate * gradients[start + at]


@kernel
def step_adagrad(rows: Weights, state: Weights, ids: Ids, firsts: Int64s, gradients: Weights, factors: Weights) -> None:
    """Adagrad with one sum per number. The factors are the rate and epsilon."""
    size = gradients.size // ids.size
    for row in range(ids.size):
        fetch_ahead(rows, ids, row, size, rows.itemsize)
        fetch_ahead(state, ids, row, size, state.itemsize)
        if firsts[np.uintp(row)] == row:
            start, to = np.uintp(row * size), np.uintp(np.int64(ids[np.uintp(row)]) * size)
            for column in range(size):
                at = np.uintp(column)
                gradient = gradients[start + at]
                total = state[to + at] + gradient * gradient
                state[to + at] = total
                rows[to + at] -= factors[0] * gradient / (square_root(total) + factors[1])


@kernel
def step_adam(rows: Weights, state: Weights, ids: Ids, firsts: Int64s, gradients: Weights, factors: Weights) -> None:
    """Adam with a number of steps for each row. The factors are the rate, epsilon, and each beta with one minus it.

    The state of a row begins with one minus each beta to the power of the row's steps. Then it has both moments.
    """
    size = gradients.size // ids.size
    width = 2 * size + 2
    for row in range(ids.size):
        fetch_ahead(rows, ids, row, size, rows.itemsize)
        fetch_ahead(state, ids, row, width, state.itemsize)
        if firsts[np.uintp(row)] == row:
            start, node = np.uintp(row * size), np.int64(ids[np.uintp(row)])
            to, own = np.uintp(node * size), np.uintp(node * width)
            mean, square = own + np.uintp(2), own + np.uintp(2 + size)
            state[own] = factors[2] * state[own] + factors[3]
            state[own + np.uintp(1)] = factors[4] * state[own + np.uintp(1)] + factors[5]
            rate, root = factors[0] / state[own], square_root(state[own + np.uintp(1)])
            for column in range(size):
                at = np.uintp(column)
                gradient = gradients[start + at]
                first = factors[2] * state[mean + at] + factors[3] * gradient
                second = factors[4] * state[square + at] + factors[5] * (gradient * gradient)
                state[mean + at], state[square + at] = first, second
                rows[to + at] -= rate * first / (square_root(second) / root + factors[1])
