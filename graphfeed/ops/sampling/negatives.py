"""Draw negatives: nodes, or pairs of nodes without an edge between them."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import (
    ID_DTYPES,
    LARGEST,
    MOST_VALUES,
    NOTHING,
    check_count,
    check_length,
    check_seed,
    check_tensors,
    check_vector,
)
from graphfeed.ops.backend import as_int64, as_types, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.draw_places import check_sums
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_start_ends


def sample_negatives(pairs: torch.Tensor, negative_ratio: int, num_destinations: int, key: int) -> torch.Tensor:
    """Return the pairs, followed by `negative_ratio` copies of each with destinations drawn uniformly.

    Draw `i` depends only on the key and on `i`. A drawn pair may be an edge of the graph. The result has the shape
    (N * (1 + negative_ratio), 2), with the copies of a pair in consecutive rows, and is written in one pass.

    Args:
        pairs: int32 or int64, shape (N, 2): sources and destinations.
        negative_ratio: Number of negatives per pair, 1 or more.
        num_destinations: Destinations are drawn from `0 .. num_destinations - 1`.

    Raises:
        ValueError: The pairs have another shape, the ratio is below 1, or `num_destinations` is 0 or too large for the
            dtype.
    """
    check_tensors(pairs=pairs)
    check_count("num_destinations", num_destinations, 0)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(
            f"Only tensor with shape N*2 is supported for negative sampling, but got {list(pairs.shape)}; "
            "give (source, destination) pairs as rows"
        )
    if pairs.dtype not in ID_DTYPES:
        raise TypeError(f"pairs must be torch.int32 or torch.int64, but is {pairs.dtype}; convert it with .to(...)")
    check_count("negative_ratio", negative_ratio, 1)
    check_seed("key", key)
    if negative_ratio >= 1 << 31:
        raise ValueError(f"negative_ratio must be below 2**31, but is {negative_ratio}")
    if num_destinations < 1 and len(pairs) > 0:
        raise ValueError(f"num_destinations must be 1 or more, but is {num_destinations}; nothing can be drawn")
    if num_destinations - 1 > torch.iinfo(pairs.dtype).max:
        raise ValueError(f"pairs are {pairs.dtype}, too narrow for {num_destinations} destinations; give them as int64")
    out = buffers.empty((len(pairs) * (1 + negative_ratio), 2), pairs.dtype, pairs.device)
    module = kernels("sampling.negatives", pairs)
    module.sample_negatives(pairs.contiguous(), negative_ratio, num_destinations, key, out)
    return out


NO_TYPES = torch.empty(0, dtype=torch.uint8, device="cpu")


class Population(NamedTuple):
    """The nodes that one endpoint of a pair is drawn from."""

    size: int
    """The nodes are 0 .. size - 1."""
    cumulative: torch.Tensor = NOTHING
    """int64: running sums of node weights, as `cumulate_weights` returns for one column. Empty: draws are uniform."""
    times: torch.Tensor = NOTHING
    """int64: the time from which each node exists. Empty: all nodes always exist."""


class EdgeSet(NamedTuple):
    """The edges of a graph, which negative pairs must avoid."""

    indptr: torch.Tensor
    indices: torch.Tensor
    types: torch.Tensor = NO_TYPES
    """The type of each edge. Empty: the graph has no edge types."""
    num_types: int = 1
    kind: int = 0
    """The edge type to avoid."""
    first_source: int = 0
    """The graph's id of source 0."""
    first_destination: int = 0


NO_EDGES = EdgeSet(NOTHING, NOTHING)


def sample_negative_pairs(
    count: int,
    key: int,
    sources: Population | torch.Tensor,
    destinations: Population,
    *,
    limits: torch.Tensor = NOTHING,
    edges: EdgeSet = NO_EDGES,
) -> torch.Tensor:
    """Draw `count` negative pairs of a source and a destination, int64, shape (count, 2), by rejection.

    A pair is valid if both nodes exist at its time and it is not one of `edges`; the in-edges of the destination are
    read to decide. Valid pairs are drawn in proportion to the product of their nodes' weights, provided that 32 draws
    yield one. If almost all pairs are invalid, the destination is drawn from all valid ones of a source, which costs
    a pass over the nodes and their in-edges. Pair `i` depends only on the key and on `i`.

    Args:
        sources, destinations: The nodes to draw from. `sources` may also be the source of each pair, int64.
        limits: int64: the time of each pair. Empty: times are ignored.
        edges: The pairs to avoid.

    Raises:
        ValueError: Lengths don't match, ids are out of range, or there is no valid pair.

    Example:
        >>> pairs = sample_negative_pairs(4, 7, torch.tensor([0, 0, 1, 1]), Population(10))
        >>> pairs[:, 0].tolist(), bool((pairs[:, 1] < 10).all())
        ([0, 0, 1, 1], True)
    """
    check_count("count", count, 0, MOST_VALUES)
    check_seed("key", key)
    fixed = sources if isinstance(sources, torch.Tensor) else NOTHING
    drawn = Population(0) if isinstance(sources, torch.Tensor) else sources
    check_wanted(count, sources, destinations, limits)
    check_negative_edges(edges, max(drawn.size, int(fixed.max()) + 1 if fixed.numel() else 0), destinations.size)
    out = buffers.empty((count, 2), torch.int64, destinations.cumulative.device)
    module = kernels("sampling.negatives", destinations.cumulative, limits=limits)
    ends = []
    for end in (drawn, destinations):
        times = end.times.contiguous() if limits.numel() else NOTHING
        ends.append(module.PopulationBlock(np.array([end.size]), end.cumulative.contiguous(), times))
    wanted = np.array([edges.kind, edges.first_source, edges.first_destination])
    columns = as_int64(edges.indptr, out), edges.indices.contiguous(), as_types(edges.types, out)
    known = module.KnownEdgeBlock(*columns, wanted)
    module.sample_negative_pairs(*ends, fixed.contiguous(), limits.contiguous(), known, key, out)
    if count and int(out.numpy().min()) < 0:
        place = int((out[:, 1] < 0).nonzero()[0])
        raise ValueError(
            f"there is no negative for pair {place}: every pair of nodes that exist at its time, with weights above 0, "
            "is an edge; allow more nodes, or edges as negatives"
        )
    return out


def check_wanted(
    count: int, sources: Population | torch.Tensor, destinations: Population, limits: torch.Tensor
) -> None:
    """Raise unless the populations are valid, and sources and times, if given, have one value per pair."""
    check_population("destinations", destinations)
    if isinstance(sources, Population):
        check_population("sources", sources)
    given = [("limits", limits)] if limits.numel() else []
    given += [("sources", sources)] if isinstance(sources, torch.Tensor) else []
    for name, part in given:
        check_vector(name, part, (torch.int64,))
        check_length(name, part, count, "pair")
    if isinstance(sources, torch.Tensor) and sources.numel() and int(sources.min()) < 0:
        raise ValueError(f"sources must be ids of 0 or more, but contain {int(sources.min())}")


def check_population(name: str, nodes: Population) -> None:
    check_count(f"size of {name}", nodes.size, 1)
    for part, values in (("weights", nodes.cumulative), ("times", nodes.times)):
        check_vector(f"{part} of {name}", values, (torch.int64,))
        if values.numel() not in (0, nodes.size):
            raise ValueError(f"{part} of {name} must have {nodes.size} values, one per node, but has {values.numel()}")
    if nodes.cumulative.numel():
        check_sums(f"weights of {name}", nodes.cumulative)


def check_negative_edges(edges: EdgeSet, num_sources: int, num_destinations: int) -> None:
    """Raise unless the edges are a valid graph that contains the sources and destinations."""
    check_tensors(indptr=edges.indptr, indices=edges.indices, types=edges.types)
    for name, number in (("kind", edges.kind), ("first_source", edges.first_source)):
        check_count(f"{name} of edges", number, 0, LARGEST)
    check_count("first_destination of edges", edges.first_destination, 0, LARGEST)
    if edges.indptr.numel() == 0:
        return
    # The kernel checks what it reads.
    check_vector("indices of edges", edges.indices)
    check_start_ends("indptr of edges", edges.indptr, edges.indices.numel())
    if edges.types.numel():
        check_vector("types of edges", edges.types, TYPE_DTYPES)
        check_length("types of edges", edges.types, edges.indices.numel(), "edge")
    total = edges.indptr.numel() - 1
    for name, first, size in (
        ("sources", edges.first_source, num_sources),
        ("destinations", edges.first_destination, num_destinations),
    ):
        if not 0 <= first <= total - size:
            raise ValueError(f"{name} {first} .. {first + size - 1} are not in a graph of {total} nodes")
