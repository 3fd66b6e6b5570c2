"""Small kernels that the tests of the compiler compile. No torch: processes that help to compile import them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, Weights, device_function, kernel
from graphfeed.ops.kernel_load import KernelLoad


def anew(old: Kernel) -> Kernel:
    """Return a kernel as a new process has it: without machine code."""
    return Kernel(old.function)


def loads_of(call: Callable[[], Any]) -> list[KernelLoad]:
    """Return the kernels that a call compiles or loads."""
    found: list[KernelLoad] = []
    with watch_kernels(found.append):
        call()
    return found


def was_compiled(old: Kernel, dtypes: tuple[str, ...] = ()) -> bool:
    """Load a kernel like a new process; return whether it was compiled rather than found on disk."""
    (load,) = loads_of(lambda: anew(old).code(dtypes))
    return load.compiled


@kernel
def double(numbers: Int64s) -> None:
    """Double numbers."""
    for place in range(numbers.size):
        numbers[place] *= 2


@kernel
def add(left: int, right: int) -> int:
    """Add integers."""
    return left + right


@kernel
def add_rows(matrix: Int64Matrix, out: Int64s) -> None:
    """Add up the rows of a matrix."""
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            out[column] += matrix[row, column]


@kernel
def scale(numbers: Ids, weights: Weights, out: Weights) -> None:
    """Multiply numbers by weights."""
    for place in range(numbers.size):
        out[place] = numbers[place] * weights[place] / 3


class Columns(NamedTuple):
    """Columns of a graph, as a kernel takes them in one argument."""

    starts: Int64s
    ends: Ids
    table: Int64Matrix


@device_function
def degree_of(columns: Any, node: Any) -> Any:
    """Return how many ends a column has."""
    return columns.starts[node + 1] - columns.starts[node]


@kernel
def walk(columns: Columns, nodes: Ids, out: Int64s) -> int:
    """Note of each node its degree, its first end, and what the table says of that; return the number of ends."""
    for place in range(nodes.size):
        node = nodes[place]
        end = columns.ends[columns.starts[node]]
        out[3 * place] = degree_of(columns, node)
        out[3 * place + 1] = end
        out[3 * place + 2] = columns.table[end, 1]
    return columns.ends.size  # type: ignore[no-any-return]


@kernel
def make_array(size: int) -> int:
    """Do what kernels can't: ask Numba for memory."""
    return np.zeros(size).size


@kernel
def divide(left: int, right: int, out: Int64s) -> None:
    """Divide integers."""
    out[0] = left // right
