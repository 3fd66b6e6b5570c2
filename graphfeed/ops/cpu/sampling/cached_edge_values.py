"""Kernel that reads values of edges where there is a copy, and else where they lie."""

from graphfeed.ops.cpu.jit import kernel

NOT_KEPT = -(1 << 62)


@kernel
def read_edges(values, kept, offsets, positions, shifts, out):
    """Write the value of each pick."""
    for column in range(shifts.size):
        shift = shifts[column]
        for item in range(offsets[column], offsets[column + 1]):
            position = positions[item]
            out[item] = values[position] if shift == NOT_KEPT else kept[position + shift]
