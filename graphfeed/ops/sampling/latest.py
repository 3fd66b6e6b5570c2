"""The latest edges of each node before a time, as matrices."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import NOTHING, check_length, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_recipe import SeedTimes
from graphfeed.ops.sampling.hops.pick_edges import check_moments
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


def count_earlier(
    indptr: torch.Tensor, times: torch.Tensor, nodes: torch.Tensor, moments: torch.Tensor
) -> torch.Tensor:
    """Return the number of edges of each node before a time, int64; 0 for a node of -1.

    Args:
        indptr: int64: offsets of the columns, in which times rise.
        times: int64: the time of each edge.
        nodes: Node ids, int32 or int64.
        moments: int64, one per node.

    Raises:
        ValueError: An id is too large, or `indptr` is not valid.

    Example:
        >>> count_earlier(*map(torch.tensor, ([0, 3, 4], [5, 6, 9, 2], [0, 1, -1], [9, 2, 7])))
        tensor([2, 0, 0])
    """
    for name, part in (("indptr", indptr), ("times", times), ("moments", moments)):
        check_vector(name, part, (torch.int64,))
    check_vector("nodes", nodes)
    check_length("moments", moments, nodes.numel(), "node")
    module = kernels("sampling.latest", nodes, indptr=indptr, times=times, moments=moments)
    counts = buffers.empty(len(nodes), torch.int64)
    columns = module.TimedColumns(indptr.contiguous(), times.contiguous())
    if module.count_earlier(columns, nodes.contiguous(), moments.contiguous(), counts):
        raise edited()
    return counts


def latest_cells(
    edges: TimedEdges, seeds: torch.Tensor, moments: SeedTimes, widths: Sequence[int], *, right: bool
) -> list[Cells]:
    """Return the latest edges of the seeds before their times, and of their sources before the times of those edges.

    Each row has the latest `width` edges of a node from the oldest to the newest, at its end or its beginning, and -1
    and time 0 elsewhere. The rows of a later hop are the cells of the one before. An edge has the window of its seed.
    """
    check_moments(len(seeds), moments)
    edges = TimedEdges(*(part.contiguous() for part in edges))
    module, found = kernels("sampling.latest", seeds), list[Cells]()
    nodes, times, windows = seeds.contiguous(), moments.times, moments.windows
    ends, starts = count_earlier(edges.indptr, edges.times, nodes, times), NOTHING
    columns = module.TimedColumns(edges.indptr, edges.times)
    written = module.CopiedEdges(edges.sources, edges.ids, edges.earlier)
    for hop, width in enumerate(widths, 1):
        if windows is not None:
            starts = count_earlier(edges.indptr, edges.times, nodes, earliest_times(times, windows))
            windows = windows.repeat_interleave(width)
        # One block for all, as an allocation takes as long as a hundred cells.
        block = buffers.POOL.empty((3 + (hop < len(widths)), len(nodes), width), np.int64)
        ids = block[2].reshape(-1).view(buffers.NUMPY_DTYPES[seeds.dtype])[: len(nodes) * width]
        out = module.CellBlock(ids, *(block[place].reshape(-1) for place in (0, 1)), block[3:].reshape(-1))
        if module.write_latest(width, right, columns, written, nodes, ends, starts, out):
            raise edited()
        ids = ids.reshape(len(nodes), width)
        cells = Cells(*map(torch.from_numpy, (ids, block[0], block[1], ids >= 0)))
        found.append(cells)
        nodes, times, ends = cells.ids.view(-1), cells.times.view(-1), torch.from_numpy(out.earlier)
    return found
