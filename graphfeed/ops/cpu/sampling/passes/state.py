"""The arrays of a mini-batch that passes work on, allocated by `graphfeed.ops.sampling.hops.hop_arrays`."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import EdgeTypes, Ids, Int32s, Int64Matrix, Int64s, SentIds, UInt64s

SHORT, AGAIN, UNDECIDED, EDITED = range(1, 5)
"""Codes of passes that stop: an array is too short; the passes of a block must run again; LABOR's candidates have not
decided all runs; the graph refers to a node, an edge or an edge type that it does not have.

A pass that returns SHORT has recorded how much it needs: in `sizes[NEEDED]`, or as the bounds that `lay_out` writes.
Python enlarges the arrays and runs the pass again from its first run. Whatever the pass has written by then, it must
write again, or no pass may read it."""
COUNT, FIRST_NEW, NEEDED = range(3)
"""Indices into `Runs.sizes`."""
NUMBER, FIRST_SEED = range(2)
"""Indices into `SeedWindow.places`."""
ROWS, EDGES, STARTS, JOINED = range(4)
"""Indices into `KeptHops.ends` and `KeptHops.needed`."""
ALWAYS = np.int64(np.iinfo(np.int64).min)
"""Time of nodes and edges without a time: they exist at all times, and are in every window."""


class Indptr(NamedTuple):
    """Offsets of the columns of the graph."""

    indptr: Int64s
    num_edges: Int64s
    """One number."""


class Sources(NamedTuple):
    """Source of each edge of the graph, or of a block."""

    indices: Ids


class TypePerEdge(NamedTuple):
    """Type of each edge of the graph, ascending in each column."""

    types: EdgeTypes


class Sums(NamedTuple):
    """Running sums of fixed-point weights in each column, or in each run of a block; empty without weights."""

    cumulative: Int64s
    # Guides for columns (see `ops.guide_sums`), or empty.
    guides: Int32s


class TimeBlock(NamedTuple):
    """The edges of each column, or of each edge type in it, sorted by time. Arrays that are not needed are empty."""

    times: Int64s
    """Time of each edge by rank, which is its position in this order."""
    order: Int64s
    """Index of the edge in its column, by rank; empty if ranks are positions."""
    links: Int64s
    """That index times 2**32, plus the source, by rank."""
    earliest: Int64s
    """A second time of the edge, by rank, which must not be before the column's window."""


class NodeMap(NamedTuple):
    """Position of each known node in the rows of its type; -1 for all other nodes."""

    places: Int32s


class RowTable(NamedTuple):
    """A hash table of rows, instead of a map, such as for nodes that are merged in the tree of each seed."""

    trees: Int64s
    """Tree of each row, in the layout of `NodeIds.rows`; empty if there is only one tree."""
    keys: Int64s
    """Tree times the number of nodes, plus the id in the graph; -1 in free slots."""
    places: Int64s
    """Position of the row in those of its type."""


class RowBlock(NamedTuple):
    """Layout of the nodes of a mini-batch, with a separate range for each node type.

    ::

    rows      [ seeds of type 0 | new | free ... | seeds of type 1 | new | free ...
    firsts    0 ^                                1 ^                               2 ^
    """

    first_ids: Int64s
    """First id of each node type in the graph, and the number of nodes."""
    firsts: Int64s
    known: Int64Matrix
    """Number of nodes of each type before each hop, shape (hops + 1, node types)."""


class NodeIds(NamedTuple):
    """Node ids of rows and of sampled edges."""

    rows: Ids
    """Id of each row in its type."""
    neighbors: Ids
    """Source of each sampled edge: first its id, later its position in the rows of its type."""


class Moments(NamedTuple):
    """Times of rows, columns and edges in temporal sampling; empty otherwise."""

    times: Int64s
    """Time of each row, in the layout of `NodeIds.rows`; and its window, if there are windows."""
    windows: Int64s
    limits: Int64s
    """Time of each column; and the first time in its window, if there are windows."""
    first_times: Int64s
    edge_times: Int64s
    """For each edge of the graph, the time of its source's row. With `ALWAYS`, or if the array is empty, it is the time
    of the column."""


class Runs(NamedTuple):
    """The runs of edges that a hop draws from: one for each node, or for each edge type of each node."""

    sizes: Int64s
    """Number of runs, the first run that the previous hop did not have, and the size that a stopped pass needs."""
    bounds: Int64s
    """Offsets of the columns of each node type, or of the runs of each edge type (`split_relations`)."""
    ids: Int64s
    """Id of the node in the graph; for runs of edge types, index of the column."""
    bases: Int64s
    """Start of the node's column in the graph."""
    starts: Int64s
    """Start of the edges that can be drawn, and their number."""
    degrees: Int64s
    states: UInt64s
    """Initial state of the run's draws."""
    offsets: Int64s
    """Offsets of the picks of each run."""
    fanouts: Int64s
    """One fan-out for all runs or, for runs of edge types, one per run."""
    scratch: Int64s
    """Scratch of temporal sampling: one block longer than the number of runs."""
    keys: UInt64s
    """Key of each column's draws, if the columns belong to several mini-batches; otherwise empty."""


class Relations(NamedTuple):
    """The edge types (one without types), their node types, and the ranges of their edges in the results."""

    sources: Int64s
    """Source and destination node type of each edge type."""
    destinations: Int64s
    order: Int64s
    """Edge types in the order in which new nodes are counted."""
    edge_starts: Int64Matrix
    """Start of the edges of each hop and edge type, shape (hops + 1, edge types + 1)."""
    indptr_starts: Int64Matrix
    """Start of the column starts of each hop and edge type; set only where there are edges."""
    indptr_ends: Int64s
    """Start of the column starts of each hop."""


class ColumnStarts(NamedTuple):
    """Offsets of the edges of each column, starting at 0 for each hop and edge type."""

    indptr: Int64s


class PickBlock(NamedTuple):
    """Sampled edges: those of one hop by column, or those of all hops, hop after hop, and by edge type in a hop."""

    positions: Int64s
    """Positions in the graph."""
    types: Int32s
    """Edge types of the picks of one hop; empty without types."""


class SeedWindow(NamedTuple):
    """The mini-batches that a program samples, one after the other."""

    places: Int64s
    """The number of mini-batches before the next one, and the number of their seeds."""
    counts: Int64s
    """Number of seeds of each mini-batch and node type."""
    seeds: Ids
    """Seeds of all mini-batches, by node type in each."""
    times: Int64s
    windows: Int64s
    """The time of each seed, and its window; empty if there are none."""
    keys: UInt64s
    """For each mini-batch and hop, the keys and LABOR's threshold."""


class KeptHops(NamedTuple):
    """The hops of the mini-batches that were sampled, one after the other."""

    rows: Ids
    """Ids of the rows of each mini-batch, by node type."""
    neighbors: Ids
    positions: Int64s
    """The row of the source of each edge, and the position of the edge in the graph."""
    indptr: Int64s
    """Column starts of each hop and edge type."""
    joined: Int64s
    """What `write_joined_hops` writes, instead of the four."""
    ends: Int64s
    """Number of rows, edges, column starts and joined numbers so far."""
    needed: Int64s
    """These numbers, after the mini-batch for which an array is too short."""
    records: Int64s
    """For each mini-batch, `known`, `edge_starts`, `indptr_starts` and `indptr_ends`."""


class EdgeIds(NamedTuple):
    """The id of each edge of the graph; empty if positions are the ids."""

    ids: SentIds
