"""Kernel that draws indices with replacement."""

from graphfeed.ops.cpu.jit import Int64s, UInt64, kernel
from graphfeed.ops.cpu.random import node_state
from graphfeed.ops.cpu.sampling.negatives import draw_node


@kernel
def draw_places(size: int, cumulative: Int64s, key: UInt64, out: Int64s) -> None:
    for number in range(out.size):
        out[number] = draw_node(size, cumulative, node_state(key, number), 0)
