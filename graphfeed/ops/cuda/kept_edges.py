"""Kernel that reads values of edges where there is a copy, and else where they lie."""

from graphfeed.ops import pinned
from graphfeed.ops.cuda.launch import launch


def read_edges(values, kept, offsets, positions, shifts, out):
    """Write the value of each pick; few enough threads wait for the bus to leave the device to others."""
    limit = pinned.max_uva_threads() if values.device.type == "cpu" else None
    launch(
        "read_edges", positions.numel(),
        values, values.itemsize, kept, offsets, shifts.numel(), positions, positions.numel(), shifts, out,
        max_threads=limit,
    )  # fmt: skip
