"""Kernels between the hops of a mini-batch, whose sizes the CPU does not know."""

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _read_first
from graphfeed.ops.cuda.sampling.group_by_type import _group
from graphfeed.ops.cuda.structure.relabel import Nodes, relabel, relabel_by_type


def compact_hop(hop, indices, offsets, positions, rows, local, sizes, slots):
    """Relabel the sources of the edges of a hop without types, of which only the GPU knows how many there are.

    Args:
        hop: Its seeds, and how many of them there are.
        indices: The source of each edge of the graph.
        offsets: Where each column's edges start.
        positions: The edges, with room for more of them.
        rows: Written: the seeds and then each new node.
        local: Written: the sources as positions in the rows.
        sizes: Written: the number of edges, and that of rows.
        slots: A hash table (`relabel.new_slots`), or None.
    """
    neighbors, at = _read_first(indices, positions, offsets[-1:])
    nodes = Nodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:], slots)
    relabel(nodes, rows, local, sizes)


def append_rows(hop, indices, edge_times, offsets, positions, rows, local, moments, sizes):
    """Make a row of each edge of a hop in time, as `compact_hop` does of each node.

    Args:
        hop: Its seeds, their times and windows, and how many of them there are.
        indices: The source of each edge of the graph.
        edge_times: Its time; None: rows have the time of their column.
        offsets: Where each column's edges start.
        positions: The edges, with room for more of them.
        rows: Written: the seeds and then the source of each edge.
        local: Written: the sources as positions in the rows.
        moments: Written: the times and windows of the rows.
        sizes: Written: the number of edges, and that of rows.
    """
    seeds, count, most, edges = hop.seeds, hop.seeds.numel(), positions.numel(), offsets[-1:]
    (indices, at), (edge_times, times_at) = (_read_first(part, positions, edges) for part in (indices, edge_times))
    launch(
        "append_rows", rows.numel(),
        seeds, seeds.itemsize, count, hop.num_seeds, indices, at, offsets, most, *hop.moments, edge_times, times_at,
        rows, local, *moments, sizes,
    )  # fmt: skip


def clean_seeds(seeds, num_nodes, types, clean, is_wrong):
    """Copy seeds, of which those that are no nodes become -1; write whether there are any to `is_wrong`, which is 0.

    With types (where the seeds of each node type start, and its first id), ids inside of them become ids of all nodes.
    """
    seed_starts, first_ids = types or (None, None)
    launch(
        "clean_seeds", seeds.numel(),
        seeds, seeds.itemsize, seeds.numel(), num_nodes, seed_starts, first_ids,
        0 if types is None else first_ids.numel() - 1, clean, is_wrong,
    )  # fmt: skip


def compact_typed_hop(hop, graph, picks, types, ranks, written):
    """Group the edges of a hop by edge type, and relabel their sources within their node type.

    Args:
        hop: Its seeds, and how many of them there are.
        graph: Its edge types and the source of each edge.
        picks: Where each column's edges start, and the edges, with room for more of them.
        types: The types of the hop (`relabel.Types`).
        ranks: The place of each edge type in the order in which new nodes are counted.
        written: The rows as ids of all nodes, and as ids inside their node type; the column starts of each edge type;
            the edges in that order, and their sources as positions.
    """
    (edge_types, indices), (offsets, positions), (rows, own_ids, indptr, grouped, local) = graph, picks, written
    starts = types.seed_starts
    before = _group(edge_types, positions, offsets, starts, types.parts, ranks, indptr, grouped)
    neighbors, at = _read_first(indices, grouped, offsets[-1:])
    nodes = Nodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:])
    relabel_by_type(nodes, types._replace(edges_before=before), rows, own_ids, local)
