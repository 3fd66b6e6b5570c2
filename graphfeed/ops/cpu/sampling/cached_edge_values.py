"""Kernel that reads values of edges from cached columns, or from the graph."""

from graphfeed.ops.cpu.jit import kernel

NOT_CACHED = -(1 << 62)


@kernel
def read_edges(values, cached, offsets, positions, cache_offsets, out):
    """Write the value of each pick."""
    for column in range(cache_offsets.size):
        cache_offset = cache_offsets[column]
        for item in range(offsets[column], offsets[column + 1]):
            position = positions[item]
            out[item] = values[position] if cache_offset == NOT_CACHED else cached[position + cache_offset]
