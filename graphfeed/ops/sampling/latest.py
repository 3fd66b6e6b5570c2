"""The latest edges of each node before a time, as matrices."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from graphfeed.ops.arguments import NOTHING
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_recipe import SeedTimes
from graphfeed.ops.sampling.time_order import earliest_times
from graphfeed.ops.structure.csc import edited


class TimedEdges(NamedTuple):
    """Arrays of a graph on the CPU, whose edges are sorted by time in each column."""

    indptr: torch.Tensor
    """int64, as are the other arrays but `sources`."""
    sources: torch.Tensor
    times: torch.Tensor
    ids: torch.Tensor = NOTHING
    """The id of each edge. Empty: its position."""
    earlier: torch.Tensor = NOTHING
    """The number of edges of the source before the time of the edge, from `count_earlier`."""


class Cells(NamedTuple):
    """The edges of a hop, a row of `width` per node."""

    ids: torch.Tensor
    times: torch.Tensor
    edges: torch.Tensor
    mask: torch.Tensor


def count_earlier(edges: TimedEdges, nodes: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Return the number of edges of each node before a time, int64; 0 for a node of -1."""
    counts, module = buffers.empty(nodes.shape, torch.int64), kernels("sampling.latest", nodes)
    if module.count_earlier(module.Columns(edges.indptr, edges.times), nodes, moments, counts):
        raise edited()
    return counts


def latest_cells(
    edges: TimedEdges, seeds: torch.Tensor, moments: SeedTimes, widths: Sequence[int], *, right: bool
) -> list[Cells]:
    """Return the latest edges of the seeds before their times, and of their sources before the times of those edges.

    Each row has the latest `width` edges of a node from the oldest to the newest, at its end or its beginning, and -1
    and time 0 elsewhere. The rows of a later hop are the cells of the one before. An edge has the window of its seed.
    """
    module, found = kernels("sampling.latest", seeds), list[Cells]()
    nodes, times, windows = seeds.contiguous(), moments.times, moments.windows
    ends, starts = count_earlier(edges, nodes, times.contiguous()), NOTHING
    columns, written = module.Columns(edges.indptr, edges.times), module.Edges(edges.sources, edges.ids, edges.earlier)
    for hop, width in enumerate(widths):
        if windows is not None:
            starts = count_earlier(edges, nodes, earliest_times(times, windows))
        shape, is_last = (len(nodes), width), hop == len(widths) - 1
        ids, mask = buffers.empty(shape, edges.sources), buffers.empty(shape, torch.uint8)
        times, places = (buffers.empty(shape, torch.int64) for _ in range(2))
        earlier = buffers.empty(0 if is_last else len(nodes) * width, torch.int64)
        out = module.Cells(ids.view(-1), times.view(-1), places.view(-1), mask.view(-1), earlier)
        if module.write_latest(width, right, columns, written, nodes, ends, starts, out):
            raise edited()
        found.append(Cells(ids, times, places, mask.view(torch.bool)))
        nodes, times, ends = ids.view(-1), times.view(-1), earlier
        windows = None if windows is None else windows.repeat_interleave(width)
    return found
