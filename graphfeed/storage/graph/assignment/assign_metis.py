"""Assigns nodes to parts by METIS, which sees the whole graph at once."""

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.storage.graph.graph_arrays import GraphArrays

SEEDS = (1 << 31) - 1
"""METIS takes seeds from 1 to this number; it draws the same by 0 as by 1."""


def assign_by_metis(graph: GraphArrays, num_parts: int, seed: int = 0, recursive: bool | None = None) -> torch.Tensor:
    """Return the part of each node by METIS (Karypis and Kumar: A fast and high quality multilevel scheme, 1998).

    Edges count in both directions, and several between two nodes weigh as many. A loop counts nothing. It took 260
    bytes for each edge of random graphs, ten to a node.

    Args:
        graph: The graph.
        num_parts: The number of parts.
        seed: Any whole number.
        recursive: Whether METIS bisects again and again; by default, pymetis decides by the number of parts.

    Returns:
        int32, shape (nodes,), in the order of the graph's ids.

    Raises:
        ImportError: pymetis is not installed.
    """
    pymetis = import_optional("pymetis", "the method 'metis'", install_hint("partition"))
    num_nodes = graph.total_num_nodes
    if num_parts == 1 or num_nodes <= num_parts:  # METIS wants more nodes than parts
        return torch.arange(num_nodes, dtype=torch.int32) % num_parts
    starts, neighbors, weights = both_directions(graph)
    _, parts = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(starts, neighbors),
        eweights=weights,
        recursive=recursive,
        options=pymetis.Options(seed=1 + seed % SEEDS),
    )
    return torch.tensor(np.asarray(parts, dtype=np.int32))


def both_directions(graph: GraphArrays) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the graph as METIS wants it: starts, neighbours in both directions without doubles, and weights."""
    ends = ops.expand_indptr(graph.csc_indptr.cpu(), torch.int64)
    sources = graph.indices.cpu().to(torch.int64)
    # METIS takes no loops.
    distinct = sources != ends
    sources, ends = sources[distinct], ends[distinct]
    num_nodes = graph.total_num_nodes
    # A pair is one number, by which sorting puts the edges in order and finds doubles.
    both = np.concatenate([(ends * num_nodes + sources).numpy(), (sources * num_nodes + ends).numpy()])
    # Doubles become one neighbour, which weighs as many.
    pairs, weights = np.unique(both, return_counts=True)
    starts = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs // num_nodes, minlength=num_nodes), out=starts[1:])
    return starts, pairs % num_nodes, weights
