"""Random walks along the edges of a graph."""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import (
    NOTHING,
    brief,
    check_count,
    check_ids,
    check_length,
    check_vector,
    is_list,
)
from graphfeed.ops.backend import kernels, load_kernels
from graphfeed.ops.cpu import random
from graphfeed.ops.memory import buffers
from graphfeed.ops.random import MASK, fold
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.negatives import NO_TYPES
from graphfeed.ops.sampling.weights import GuidedSums
from graphfeed.ops.structure.csc import edited

BLOCK = 1024
"""Number of walks that take each step together."""
MOST_STEPS = 1 << 20
"""Upper limit of the number of steps."""
UNIT = 1 << 32
"""Integer value of the chance 1."""
ACCEPT, STOP = 1 << 32, 1 << 33
"""Numbers of the draws that accept an edge of a second-order step, plus its own number, and that stop a walk."""


class WalkSteps(NamedTuple):
    """The steps of random walks."""

    length: int
    """Number of steps."""
    p: float = 1.0
    """node2vec: the larger, the more rarely a walk goes back to the node before."""
    q: float = 1.0
    """node2vec: the larger, the more rarely it goes to a node without an edge to the node before."""
    stops: Sequence[float] = ()
    """The chance that a walk ends before each step; empty if it doesn't."""
    types: Sequence[int] = ()
    """The edge type of each step; empty if the graph has no types."""

    @property
    def is_second_order(self) -> bool:
        """Whether a step depends on the node before."""
        return self.p != 1 or self.q != 1

    def chances(self) -> list[int]:
        """Return the chances, in units of 2**-32, of the node before, of a node with an edge to it, and of others."""
        # Not by 1 / p, which may be infinite.
        least = min(self.p, 1.0, self.q)
        return [round(least / value * UNIT) for value in (self.p, 1.0, self.q)]


class Walks(NamedTuple):
    """Random walks, with -1 after the end of a walk."""

    nodes: torch.Tensor
    """int64, shape (walks, steps + 1): the nodes; with types, their ids in their types."""
    edges: torch.Tensor | None
    """int64, shape (walks, steps): the position of each edge, if asked for."""


def walk_trees(starts: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the tree of each walk, part of its keys, from int64 tensors: its start, and its number above 40 bits."""
    if not starts.is_cpu:
        return starts + numbers * (1 << 40)
    # By NumPy: torch would wake its threads, which waits for busy cores.
    return torch.from_numpy(starts.numpy() | numbers.numpy() << 40)


def walk_draws(
    key: int, trees: torch.Tensor, nodes: torch.Tensor, numbers: Sequence[int], edge_type: int | None = None
) -> NDArray[np.uint64]:
    """Return 64 random bits of each walk for each number, shape (walks, numbers), as the kernel draws them.

    Args:
        key: The key of the step.
        nodes: The nodes of the walks, as ids in the graph.
        numbers: The numbers of the draws.
        edge_type: The edge type of the step, if the graph has types.
    """
    draws: Any = random
    with np.errstate(over="ignore"):
        states = draws.node_state(draws.tree_key(np.uint64(key), trees.numpy()), nodes.numpy())
        states = states if edge_type is None else draws.type_state(states, edge_type)
        bits: NDArray[np.uint64] = draws.draw_bits(states[:, None], np.array(numbers, np.int64))
    return bits


def walk_chances(bits: NDArray[np.uint64]) -> torch.Tensor:
    """Return draws as chances in units of 2**-32 (int64)."""
    return torch.from_numpy((bits >> np.uint64(32)).astype(np.int64))


def random_walks(
    graph: Graph,
    starts: torch.Tensor,
    numbers: torch.Tensor,
    key: int,
    steps: WalkSteps,
    *,
    sources: torch.Tensor = NOTHING,
    edges: bool = False,
) -> Walks:
    """Return random walks against the direction of edges, from a column to the source of one of its in-edges.

    Each step draws one edge with replacement as `sample_neighbors` does, with the step's number folded into the key,
    in the tree of the walk (`walk_trees`). So a walk depends only on the key, its start and its number. A walk ends at
    a node without in-edges of the type, or with weight 0 only. If 1,024 edges of a second-order step are rejected, the
    last one is accepted.

    Args:
        graph: A graph without times, whose arrays are not checked here. With weights, edges are drawn by weight.
        starts: int64: ids of nodes in the graph.
        numbers: int64, from 0 to 2**23 - 1: the number of each walk. Walks with the same start and number are equal.
        steps: The steps.
        sources: int64: the sources of each column in ascending order, of all types, for second-order walks.
        edges: Whether the positions of the edges are returned.

    Raises:
        ValueError: A start is not a node of the graph, a number is out of range, or the graph is not valid.

    Example:
        >>> graph = Graph.checked(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2]))
        >>> random_walks(graph, torch.tensor([0, 1]), torch.tensor([0, 0]), 7, WalkSteps(3)).nodes
        tensor([[ 0,  1,  2, -1],
                [ 1,  2, -1, -1]])
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be an ops.Graph, but is {brief(graph)}; create it with Graph.checked")
    if graph.by_column is not None:
        raise ValueError("graph has times, which walks ignore; leave them out")
    check_vector("starts", starts, (torch.int64,))
    check_vector("numbers", numbers, (torch.int64,))
    check_vector("sources", sources, (torch.int64,))
    check_length("numbers", numbers, starts.numel(), "walk")
    check_ids("starts", starts, graph.num_nodes)
    check_ids("numbers", numbers, 1 << 23)
    check_count("key", key, 0, MASK)
    check_steps(steps, graph)
    if steps.is_second_order:
        check_length("sources", sources, graph.num_edges, "edge")
    given = {"indptr": graph.indptr, "indices": graph.indices, "numbers": numbers}
    given |= {"sources": sources} if steps.is_second_order and starts.is_cpu else {}
    module = kernels("sampling.random_walks", starts, **given)
    if steps.is_second_order and not starts.is_cpu:
        raise ValueError(f"walks with p and q run on the CPU, but starts are on {starts.device}; move them with .cpu()")
    tuples = load_kernels("cpu", "sampling.random_walks")
    cumulative, guides = GuidedSums(NOTHING) if graph.sums is None else graph.sums
    types = NO_TYPES if graph.types is None else graph.types
    arrays = tuples.WalkGraph(graph.indptr, graph.indices, types, cumulative, guides, sources.contiguous())
    kinds = [graph.destinations[kind] for kind in steps.types] + [graph.sources[kind] for kind in steps.types[-1:]]
    by_step = tuples.WalkSteps(
        np.array([fold(key, step) for step in range(steps.length)], np.uint64),
        np.array([round(stop * UNIT) for stop in steps.stops], np.uint64),
        np.array(steps.types, np.int64),
        np.array([graph.first_ids[kind] for kind in kinds] or [0] * (steps.length + 1), np.int64),
        np.array(steps.chances() if steps.is_second_order else [], np.uint64),
    )
    length = int(steps.length)
    out = buffers.empty((starts.numel(), length + 1), torch.int64, starts.device)
    places = buffers.empty((starts.numel() if edges else 0, length), torch.int64, starts.device)
    trees, walkers = walk_trees(starts, numbers), new_walkers(module) if starts.is_cpu else None
    if not module.random_walks(arrays, by_step, starts.contiguous(), trees, walkers, out, places):
        raise edited()
    return Walks(out, places if edges else None)


def new_walkers(module: Any) -> Any:
    """Return the scratch of the kernel."""
    dtypes = {"hashes": np.uint64, "states": np.uint64, "densities": np.float64}
    names = module.Walkers._fields
    return module.Walkers(*(buffers.POOL.empty(BLOCK, dtypes.get(name, np.int64)) for name in names))


def check_steps(steps: WalkSteps, graph: Graph) -> None:
    """Raise unless the steps are valid for a graph."""
    if not isinstance(steps, WalkSteps):
        raise TypeError(f"steps must be WalkSteps, but is {brief(steps)}")
    check_count("length", steps.length, 0, MOST_STEPS)
    for name, values in (("stops", steps.stops), ("types", steps.types)):
        if not is_list(values):
            raise TypeError(f"{name} must be a list, but is {brief(values)}")
    for name, value in (("p", steps.p), ("q", steps.q), *(("stops", stop) for stop in steps.stops)):
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, but is {brief(value)}")
        if not (0 <= value <= 1 if name == "stops" else 0 < value < float("inf")):
            raise ValueError(f"{name} must be {'in 0 .. 1' if name == 'stops' else 'above 0'}, but is {brief(value)}")
    for name, values in (("stops", steps.stops), ("types", steps.types)):
        if len(values) not in (0, steps.length):
            raise ValueError(f"{name} must have {steps.length} values, one per step, but has {len(values)}")
    for kind in steps.types:
        check_count("types", kind, 0, graph.num_types - 1)
    if bool(steps.types) != (graph.types is not None) and steps.length:
        raise ValueError("types must be given if the graph has types, and only then")
    for kind, following in pairwise(steps.types):
        if graph.sources[kind] != graph.destinations[following]:
            raise ValueError(f"types {kind} and {following} don't join: a walk goes from destination to source")
