"""The arrays of a mini-batch that passes work on, as `graphfeed.ops.sampling.hops.hop_arrays` makes them."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import EdgeTypes, Ids, Int32s, Int64Matrix, Int64s, UInt64s

SHORT, AGAIN, UNDECIDED, EDITED = range(1, 5)
"""What a pass returns when it stops: an array is too short, the passes of a block come next again, LABOR's candidates
have not decided all runs, or the graph leads to a node, an edge or an edge type that it does not have."""
COUNT, FIRST_NEW, NEEDED = range(3)
"""Places in `Runs.sizes`."""
ALWAYS = np.int64(np.iinfo(np.int64).min)
"""The time of what has none: it exists at all times, and is in every window."""


class Indptr(NamedTuple):
    """Where the columns of the graph begin, and where the last one ends."""

    indptr: Int64s
    num_edges: Int64s
    """One number."""


class Sources(NamedTuple):
    """The source of each edge of the graph, or of a block."""

    indices: Ids


class TypePerEdge(NamedTuple):
    """The edge type of each edge of the graph, ascending inside of each column."""

    types: EdgeTypes


class Sums(NamedTuple):
    """Fixed-point weights as running sums of each column, or of each run of a block; empty without weights."""

    cumulative: Int64s
    # Perhaps there are guides to whole columns (see `ops.guide_sums`).
    guides: Int32s


class TimeOrder(NamedTuple):
    """In time: the edges of each column, or of each edge type in it, sorted by time. What is empty is not there."""

    times: Int64s
    """By rank, which is an edge's place in this order."""
    order: Int64s
    """By rank, the edge's place in its column; empty where ranks are positions."""
    links: Int64s
    """By rank, the place times 2**32, plus the source."""
    earliest: Int64s
    """By rank, a second time, which must not be before the column's window."""


class NodeMap(NamedTuple):
    """The position of each known node among the rows of its type, and -1 for all others."""

    places: Int32s


class Table(NamedTuple):
    """A hash table of rows, in place of a map: for nodes that are merged in the tree of each seed."""

    trees: Int64s
    """Of each row, laid out as `NodeIds.rows`, the number of its tree; empty if all rows are of one."""
    keys: Int64s
    """The number of the tree times the number of nodes, plus the id in the graph; -1 where a slot is free."""
    places: Int64s
    """The place of the row among those of its type."""


class Rows(NamedTuple):
    """Where the nodes of a mini-batch are, those of each node type in a part of their own.

    ::

    rows      [ seeds of type 0 | new | room ... | seeds of type 1 | new | room ...
    firsts    0 ^                                1 ^                               2 ^
    """

    first_ids: Int64s
    """The first id of each node type in the graph, and the number of nodes."""
    firsts: Int64s
    known: Int64Matrix
    """How many nodes of each type there are before each hop, shape (hops + 1, node types)."""


class NodeIds(NamedTuple):
    """Ids, and what they become."""

    rows: Ids
    """Of each row, its id inside of its type."""
    neighbors: Ids
    """Of each sampled edge its source; then that source's place among the rows of its type."""


class Moments(NamedTuple):
    """Sampling in time: when rows and columns look at the graph; empty otherwise."""

    times: Int64s
    """Of each row, laid out as `NodeIds.rows`, its time; and its window, if there are any."""
    windows: Int64s
    limits: Int64s
    """Of each column its time; and the first time inside of its window, if there are windows."""
    first_times: Int64s
    edge_times: Int64s
    """Of each edge of the graph, the time at which its source is looked at. `ALWAYS` stands for the time of the column,
    and so does an empty array."""


class Runs(NamedTuple):
    """What a hop draws from: a run of edges for each node, or for each edge type of each node."""

    sizes: Int64s
    """How many runs there are, the first that the hop before did not have, and how many need room."""
    bounds: Int64s
    """Where the columns of each node type begin, and their number."""
    ids: Int64s
    """The node's id in the graph; of an edge type's run, the number of its column."""
    bases: Int64s
    """Where the node's column begins in the graph."""
    starts: Int64s
    """Where the edges begin that can be drawn, and how many these are."""
    degrees: Int64s
    states: UInt64s
    """What its draws are counted from."""
    offsets: Int64s
    """Where its picks begin, and where the last ones end."""
    fanouts: Int64s
    """The fan-out of all; or, of runs of edge types, that of each."""
    scratch: Int64s
    """In time: longer by a block than there are runs."""
    keys: UInt64s
    """The key of each column's draws, where these are of several mini-batches; otherwise empty."""


class Relations(NamedTuple):
    """The edge types (one without types): where they lead from and to, and where their edges are among the results."""

    sources: Int64s
    """The node type that it leads from; and the one that it leads to."""
    destinations: Int64s
    order: Int64s
    """The edge types in the order in which new nodes are counted."""
    edge_starts: Int64Matrix
    """Where the edges of each hop and edge type begin, shape (hops + 1, edge types + 1)."""
    indptr_starts: Int64Matrix
    """Where the column starts of each hop and edge type begin; only of those that have edges there."""
    indptr_ends: Int64s
    """Where those of each hop begin."""


class ColumnStarts(NamedTuple):
    """Where the edges of each column begin, from 0 on for each hop and edge type."""

    indptr: Int64s


class Picks(NamedTuple):
    """Edges: those of a hop by column, or the sampled ones, hop after hop, and in a hop by edge type."""

    positions: Int64s
    """In the graph."""
    types: Int32s
    """Their edge types, of those of a hop by column; empty without types."""
