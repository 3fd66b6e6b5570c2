"""Recipes select the passes that sample a mini-batch, by the arrays of the graph and the sampling method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.time_order import TimeOrder

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
    """int64, shape (2, edges), by edge type, ordered by hop: the source row of each edge, and its destination row."""
    edge_ids: Mapping[Any, torch.Tensor | None]
    """int64, the id of each edge, by edge type; None if they are unknown."""
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
    """Which arrays of `Graph.by_column` and of `Graph.by_type` passes read, in the order of the fields of `TimeOrder`.
    None: sampling is not temporal."""
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
    kept: str | None
    """For a program that samples several mini-batches: "hops", or the dtype of the ids of edges that are joined."""

    @property
    def typed(self) -> bool:
        """Whether picks are grouped by edge type and sorted within each column, even for a single type."""
        return self.relabelled and self.types is not None

    @property
    def merged(self) -> bool:
        """Whether each node has a single row, rather than one per tree or edge."""
        return self.relabelled and self.drawing.rows == "node"


def recipe_of(
    graph: Graph, ids: torch.dtype, drawing: Drawing, fanouts: Sequence[Sequence[int]], **more: Any
) -> Recipe:
    """Return the recipe of a single hop without relabelling, apart from the fields in `more`."""
    timed, sums, large = graph.by_column is not None, graph.sums, graph.large_columns
    given: dict[str, Any] = {
        "ids": ids,
        "sources": graph.indices.dtype,
        "types": None if graph.types is None else graph.types.dtype,
        "starts": torch.int64,
        # The threshold is an argument of each mini-batch, so it doesn't need another program.
        "drawing": drawing._replace(switch_threshold=0) if drawing.switch_threshold else drawing,
        "fanouts": tuple([(len(own), min(max(own), MANY)) for own in fanouts]),
        "weighted": not timed and sums is not None and sums.cumulative.numel() > 0,
        "ranked": tuple([arrays_read(own) for own in (graph.by_column, graph.by_type)]) if timed else None,
        "windows": False,
        "indexed": 0 if timed or large is None else large.columns.numel(),
        "num_node_types": 1,
        "num_types": 1,
        "relabelled": False,
        "by_table": False,
        "by_page": False,
        "kept": None,
    }
    return Recipe(**{**given, **more})


def arrays_read(order: TimeOrder | None) -> tuple[bool, ...]:
    """Return which arrays of an order of time passes read. Links include the order."""
    assert order is not None
    filled = {name: part is not None and part.numel() > 0 for name, part in order._asdict().items()}
    return tuple({**filled, "order": filled["order"] and not filled["links"]}.values())
