"""What decides which passes sample a mini-batch: the arrays of its graph, and how edges are chosen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from graphfeed.ops.sampling.hops.hop_graph import BY_RANK, HopGraph
from graphfeed.ops.sampling.weights import GuidedSums

Method: TypeAlias = Literal["uniform", "labor", "latest"]
RowKind: TypeAlias = Literal["node", "tree", "edge"]

MAX_LOOK_BACK = 48
"""Kernels compare up to this many picks of a column with each other; more are looked up in a hash table."""
MANY = 64
"""Fan-outs from here on are sampled by the same passes."""


class Drawing(NamedTuple):
    """How a hop chooses among the eligible edges of a column."""

    method: Method = "uniform"
    """At random, also by weight; by LABOR; or the latest ones."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    switch_threshold: int = 0
    """LABOR: which part of the nodes draws by the second key of a hop, in units of 2**-64."""
    only_new: bool = False
    """Whether a hop samples only the rows that the hop before has added."""
    rows: RowKind = "node"
    """What has a row of its own: each node; each node in the tree of a seed; or each edge, for the node it leads from.
    In time, one of the latter two."""


class SeedTimes(NamedTuple):
    """The timestamps of the seeds of a mini-batch, node type after node type."""

    times: torch.Tensor
    """int64, one per seed."""
    windows: torch.Tensor | None = None
    """int64, one per seed, 0 or more; None takes all edges before the time."""


class HopEdges(NamedTuple):
    """The edges of one type in a hop: by column and, with types, ascending by their positions there."""

    indptr: torch.Tensor
    indices: torch.Tensor
    """Positions in the rows of the source type."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays, or what was read there."""


class SampledHop(NamedTuple):
    """One hop: the sampled in-edges of `columns`, relabelled. A graph without types has one, with the number 0."""

    columns: list[torch.Tensor]
    """Ids of the hop's seeds inside their node type; by node type."""
    rows: list[torch.Tensor]
    """The ids of all nodes known after the hop, by node type; they begin with `columns`."""
    edges: dict[int, HopEdges]
    """By edge type; only those that have edges here, on a GPU all of them."""


class JoinedHops(NamedTuple):
    """All hops of a mini-batch as one, by type: in `graphfeed.ops` by its number, elsewhere by its name."""

    rows: Mapping[Any, torch.Tensor]
    """The ids of all nodes, by node type."""
    num_rows: Mapping[Any, list[int]]
    """How many of these are seeds, and how many each hop has added."""
    edges: Mapping[Any, torch.Tensor]
    """int64, shape (3, edges), by edge type, hop after hop: the row of each edge, its column, which is a row of the
    destination type, and its id; shape (2, edges) where ids are not known."""
    num_edges: Mapping[Any, list[int]]
    """How many of these each hop has."""
    trees: Mapping[Any, torch.Tensor] | None
    """The seed that each row belongs to, by the numbers of the seeds, which run through the types; None: no trees."""


Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Reads values of edges by their positions."""


class Recipe(NamedTuple):
    """What mini-batches have in common that are sampled by the same program."""

    ids: torch.dtype
    sources: torch.dtype
    types: torch.dtype | None
    starts: torch.dtype
    """Of the column starts of the results."""
    drawing: Drawing
    """But for the threshold, which may differ."""
    fanouts: tuple[tuple[int, int], ...]
    """Of each hop how many there are, and the largest up to `MANY`."""
    weighted: bool
    ranked: tuple[tuple[bool, ...], ...] | None
    """Which arrays there are by rank, in the order of `BY_RANK`: for hops with one fan-out, and for those with one per
    edge type; None: not in time."""
    windows: bool
    indexed: int
    """The number of columns in LABOR's index."""
    num_node_types: int
    """The number of node types, and that of edge types."""
    num_types: int
    relabelled: bool
    """Otherwise there is one hop, and its picks are the result."""
    by_table: bool
    """Whether nodes are looked up in a hash table, in place of a map: in trees, and where a map has no room."""
    by_page: bool
    """Whether the graph is read in the order of its file."""

    @property
    def typed(self) -> bool:
        """Whether picks are grouped by edge type, ascending in each column, also where there is one type alone."""
        return self.relabelled and self.types is not None

    @property
    def merged(self) -> bool:
        """Whether each node has one row, rather than one in each tree or for each edge that leads from it."""
        return self.relabelled and self.drawing.rows == "node"


def recipe_of(
    graph: HopGraph,
    ids: torch.dtype,
    drawing: Drawing,
    fanouts: Sequence[Sequence[int]],
    windows: bool,
) -> Recipe:
    """Return the recipe of one hop of a `kernel_graph` without a node map, whose picks are the result."""
    ranked = None
    if graph.timed is not None:
        ranked = tuple([tuple([getattr(own, name).numel() > 0 for name in BY_RANK]) for own in graph.timed])
    return Recipe(
        ids,
        graph.indices.dtype,
        None if graph.types is None else graph.types.dtype,
        torch.int64,
        # The threshold is an argument of each mini-batch, so it makes no other program.
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
