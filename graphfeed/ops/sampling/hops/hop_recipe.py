"""Recipes select the passes that sample a mini-batch, by the arrays of the graph and the sampling method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from graphfeed.ops.sampling.hops.hop_graph import BY_RANK, HopGraph
from graphfeed.ops.sampling.weights import GuidedSums

Method: TypeAlias = Literal["uniform", "labor", "latest"]
RowKind: TypeAlias = Literal["node", "tree", "edge"]

MAX_LOOK_BACK = 48
"""Kernels compare up to this many picks of a column with each other; for more they use a hash table."""
MANY = 64
"""Fan-outs of at least this size are sampled by the same passes."""


class Drawing(NamedTuple):
    """How a hop selects among the eligible edges of a column."""

    method: Method = "uniform"
    """Sampling method: "uniform" (or by weight), "labor", or "latest" for the latest edges."""
    replace: bool = False
    """Whether an edge may be selected more than once."""
    switch_threshold: int = 0
    """For LABOR: the share of nodes that draw with the second key of a hop, in units of 2**-64."""
    only_new: bool = False
    """Whether a hop samples only from the rows that the previous hop added."""
    rows: RowKind = "node"
    """Whether there is a row for each node, for each node of a seed's tree, or for the source of each edge. Temporal
    sampling needs "tree" or "edge"."""


class SeedTimes(NamedTuple):
    """The timestamps of the seeds of a mini-batch, ordered by node type."""

    times: torch.Tensor
    """int64, one per seed."""
    windows: torch.Tensor | None = None
    """int64, one per seed, 0 or more. None: all edges before the time are eligible."""


class HopEdges(NamedTuple):
    """The edges of one type in a hop, by column; in a typed graph, sorted by position within each column."""

    indptr: torch.Tensor
    indices: torch.Tensor
    """Positions of the sources in the rows of their node type."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays; or the values that `read` returned for them."""


class SampledHop(NamedTuple):
    """One hop: the sampled in-edges of `columns`, relabelled. An untyped graph has a single type, number 0."""

    columns: list[torch.Tensor]
    """Ids of the hop's seeds within their node type, by node type."""
    rows: list[torch.Tensor]
    """Ids of all nodes after the hop, by node type. They begin with `columns`."""
    edges: dict[int, HopEdges]
    """Edges by edge type: on the CPU only types with sampled edges, on a GPU all types."""


class JoinedHops(NamedTuple):
    """All hops of a mini-batch joined, by type: by its number in `graphfeed.ops`, by its name elsewhere."""

    rows: Mapping[Any, torch.Tensor]
    """The ids of all nodes, by node type."""
    num_rows: Mapping[Any, list[int]]
    """Number of seeds, followed by the number of rows that each hop added."""
    edges: Mapping[Any, torch.Tensor]
    """int64, shape (3, edges), by edge type, ordered by hop: the source row of each edge, its destination row, and its
    id. Shape (2, edges) if ids are unknown."""
    num_edges: Mapping[Any, list[int]]
    """Number of edges of each hop."""
    trees: Mapping[Any, torch.Tensor] | None
    """Index of the seed that each row belongs to; seeds are numbered across all types. None: no trees."""


Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""A function that returns values of edges by their positions."""


class Recipe(NamedTuple):
    """The properties that mini-batches of the same program share."""

    ids: torch.dtype
    sources: torch.dtype
    types: torch.dtype | None
    starts: torch.dtype
    """dtype of the results' column starts."""
    drawing: Drawing
    """The threshold is left out, since it may differ between mini-batches."""
    fanouts: tuple[tuple[int, int], ...]
    """For each hop, the number of fan-outs, and the largest one, at most `MANY`."""
    weighted: bool
    ranked: tuple[tuple[bool, ...], ...] | None
    """Which arrays by rank are present, in the order of `BY_RANK`: for hops with one fan-out, and for hops with one per
    edge type. None: sampling is not temporal."""
    windows: bool
    indexed: int
    """Number of columns in LABOR's index."""
    num_node_types: int
    num_types: int
    """Number of edge types."""
    relabelled: bool
    """If False, there is one hop, and its picks are the result."""
    by_table: bool
    """Whether nodes are looked up in a hash table: for trees, and if a map of all nodes is too large."""
    by_page: bool
    """Whether the graph is read page by page, in the order of its file."""

    @property
    def typed(self) -> bool:
        """Whether picks are grouped by edge type and sorted within each column, even for a single type."""
        return self.relabelled and self.types is not None

    @property
    def merged(self) -> bool:
        """Whether each node has a single row, rather than one per tree or edge."""
        return self.relabelled and self.drawing.rows == "node"


def recipe_of(
    graph: HopGraph,
    ids: torch.dtype,
    drawing: Drawing,
    fanouts: Sequence[Sequence[int]],
    windows: bool,
) -> Recipe:
    """Return the recipe of a `kernel_graph`, for single hops without relabelling."""
    ranked = None
    if graph.timed is not None:
        ranked = tuple([tuple([getattr(own, name).numel() > 0 for name in BY_RANK]) for own in graph.timed])
    return Recipe(
        ids,
        graph.indices.dtype,
        None if graph.types is None else graph.types.dtype,
        torch.int64,
        # The threshold is an argument of each mini-batch, so it doesn't need another program.
        drawing._replace(switch_threshold=0) if drawing.switch_threshold else drawing,
        tuple([(len(own), min(max(own), MANY)) for own in fanouts]),
        isinstance(graph.cumulative, GuidedSums) and graph.cumulative.cumulative.numel() > 0,
        ranked,
        windows,
        0 if graph.large_columns is None else graph.large_columns.columns.numel(),
        num_node_types=1,
        num_types=1,
        relabelled=False,
        by_table=False,
        by_page=False,
    )
