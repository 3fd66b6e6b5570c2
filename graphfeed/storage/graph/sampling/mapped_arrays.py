"""How a graph is read whose arrays lie in mapped files and may not stay in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from graphfeed.ops.memory import MappedReads, read_at_random
from graphfeed.storage.graph.attributes import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.mapped_file import find_in_files
from graphfeed.storage.memory.memory_limits import available_memory

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays

SHARE = 4
"""A graph in files is taken to be in memory up to this part of what is free."""


def mapped_reads(graph: "GraphArrays") -> MappedReads | None:
    """Return how a graph is sampled that lies in mapped files and is larger than a quarter of free memory.

    The system is told then that its arrays are read at random, and samplers ask for pages ahead of their reads. The
    rule is applied at the first look in a process. None: the graph is read as one in memory is.
    """
    reads = known_reads(graph)
    if reads is None:
        arrays = arrays_in_files(graph)
        is_large = sum(array.nbytes for array in arrays) > available_memory() / SHARE
        if is_large:
            read_at_random(arrays, yes=True)
        reads = (os.getpid(), MappedReads() if is_large else None)
        vars(graph)["_mapped_reads"] = reads
    return reads[1]


@contextmanager
def in_passes(graph: "GraphArrays") -> Iterator[None]:
    """Have the system read ahead while something is computed of the whole graph."""
    reads = known_reads(graph)
    arrays = arrays_in_files(graph) if reads is not None and reads[1] is not None else []
    read_at_random(arrays, yes=False)
    try:
        yield
    finally:
        read_at_random(arrays, yes=True)


def known_reads(graph: "GraphArrays") -> tuple[int, MappedReads | None] | None:
    """Return what was found in this process; a worker maps the files anew, so that nothing holds of its mapping."""
    found: tuple[int, MappedReads | None] | None = vars(graph).get("_mapped_reads")
    return found if found is not None and found[0] == os.getpid() else None


def arrays_in_files(graph: "GraphArrays") -> list[torch.Tensor]:
    """Return the arrays that sampling reads at random, of those that lie in mapped files."""
    edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    arrays = (graph.csc_indptr, graph.indices, graph.type_per_edge, edge_ids)
    return find_in_files([array for array in arrays if array is not None and array.is_cpu])
