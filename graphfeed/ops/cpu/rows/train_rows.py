"""Kernels that draw the first rows of a table, and update rows by their gradients."""

import numpy as np

from graphfeed.ops.cpu.jit import Float64s, Ids, UInt64, Weights, device_function, kernel, square_root
from graphfeed.ops.cpu.random import draw_bits, node_state
from graphfeed.ops.cpu.rows.decode import fetch_ahead

SIGNED = 1 << 23
"""A draw has 24 bits: a number from -SIGNED to SIGNED - 1."""
SGD, ROWWISE, ADAGRAD, ADAM = range(4)


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
def add_equal(places: Ids, gradients: Weights, sums: Weights) -> None:
    """Add the gradients to the sums at their places, in order."""
    size = gradients.size // places.size
    for row in range(places.size):
        start, to = np.uintp(row * size), np.uintp(np.int64(places[np.uintp(row)]) * size)
        for column in range(size):
            sums[to + np.uintp(column)] += gradients[start + np.uintp(column)]


@kernel
def step(rows: Weights, state: Weights, ids: Ids, gradients: Weights, factors: Weights, rule: int) -> None:
    """Update the row of each id, which are distinct, by its gradient. `factors` are those of `StepRule`."""
    size = gradients.size // ids.size
    width = state.size // (rows.size // size)
    for row in range(ids.size):
        fetch_ahead(rows, ids, row, size, rows.itemsize)
        fetch_ahead(state, ids, row, width, state.itemsize)
        node, start = np.int64(ids[np.uintp(row)]), np.uintp(row * size)
        to, own = np.uintp(node * size), np.uintp(node * width)
        if rule == ADAM:
            step_adam(rows, to, state, own, gradients, start, size, factors)
        elif rule == ADAGRAD:
            step_adagrad(rows, to, state, own, gradients, start, size, factors)
        else:
            rate = factors[0] if rule == SGD else rate_of_row(state, own, gradients, start, size, factors)
            for column in range(size):
                rows[to + np.uintp(column)] -= rate * gradients[start + np.uintp(column)]


@device_function
def rate_of_row(state, own, gradients, start, size, factors):
    """Return the rate of Adagrad with one sum per row. The factors are the rate, epsilon and the size of a row."""
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
    total = state[own] + ((first + second) + (third + fourth)) / factors[2]
    state[own] = total
    return factors[0] / (square_root(total) + factors[1])


@device_function
def step_adagrad(rows, to, state, own, gradients, start, size, factors):
    """Adagrad with one sum per number. The factors are the rate and epsilon."""
    for column in range(size):
        at = np.uintp(column)
        gradient = gradients[start + at]
        total = state[own + at] + gradient * gradient
        state[own + at] = total
        rows[to + at] -= factors[0] * gradient / (square_root(total) + factors[1])


@device_function
def step_adam(rows, to, state, own, gradients, start, size, factors):
    """Adam with a number of steps for each row. The factors are the rate, epsilon, and each beta with one minus it.

    The state of a row begins with one minus each beta to the power of the row's steps. Then it has both moments.
    """
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
