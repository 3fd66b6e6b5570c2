"""Kernels between the hops of a mini-batch, whose sizes the CPU does not know."""

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _read_first
from graphfeed.ops.cuda.sampling.group_by_type import _group
from graphfeed.ops.cuda.structure.relabel import HopNodes, relabel, relabel_by_type


def compact_hop(hop, indices, offsets, positions, rows, local, sizes, slots):
    """Relabel the sources of a hop's edges, of which only the GPU knows how many there are."""
    neighbors, at = _read_first(indices, positions, offsets[-1:])
    # Written: `rows`, the seeds and then each new node; `local`, the sources as positions in them; and `sizes`, the
    # number of edges and that of rows.
    nodes = HopNodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:], slots)
    relabel(nodes, rows, local, sizes)


def append_rows(hop, indices, edge_times, offsets, positions, rows, local, moments, sizes):
    """Make a row of each edge of a hop in time, as `compact_hop` does of each node."""
    seeds, most, edges = hop.seeds, positions.numel(), offsets[-1:]
    (indices, at), (edge_times, times_at) = (_read_first(part, positions, edges) for part in (indices, edge_times))
    # The rows' `moments` are written, too; without times of edges, they are those of the column.
    given = seeds, seeds.numel(), hop.num_seeds, indices, at, offsets, most, *hop.moments, edge_times, times_at
    launch("append_rows", rows.numel(), *given, rows, local, *moments, sizes)


def clean_seeds(seeds, num_nodes, types, clean, is_wrong):
    """Copy seeds, with -1 for those that are no nodes; write whether there are any to `is_wrong`, which is 0."""
    # Where the seeds of each node type start, and its first id: ids inside of it become ids of all nodes.
    seed_starts, first_ids = types or (None, None)
    kinds = 0 if types is None else first_ids.numel() - 1
    launch(
        "clean_seeds", seeds.numel(), seeds, seeds.numel(), num_nodes, seed_starts, first_ids, kinds, clean, is_wrong
    )


def compact_typed_hop(hop, graph, picks, types, ranks, written):
    """Group the edges of a hop by edge type, and relabel their sources within their node type."""
    # Written: rows as ids of all nodes, and as ids inside their node type; the column starts of each edge type; the
    # edges in that order, and their sources as positions.
    (edge_types, indices), (offsets, positions), (rows, own_ids, indptr, grouped, local) = graph, picks, written
    starts = types.seed_starts
    before = _group(edge_types, positions, offsets, starts, types.parts, ranks, indptr, grouped)
    neighbors, at = _read_first(indices, grouped, offsets[-1:])
    nodes = HopNodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:])
    relabel_by_type(nodes, types._replace(edges_before=before), rows, own_ids, local)
