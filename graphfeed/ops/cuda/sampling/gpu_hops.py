"""Kernels between the hops of a mini-batch, whose sizes only the GPU knows."""

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _read_first
from graphfeed.ops.cuda.sampling.group_by_type import _group
from graphfeed.ops.cuda.structure.relabel import HopNodes, relabel, relabel_by_type


def relabel_hop(hop, indices, picks, types, rows, local, slots):
    """Relabel the sources of a hop's edges, whose number only the GPU knows."""
    offsets, positions = picks
    neighbors, at = _read_first(indices, positions, offsets[-1:])
    nodes = HopNodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:], slots)
    relabel(nodes, rows, local, types.neighbor_starts, types.row_starts, types.next_parts)


def append_rows(hop, indices, edge_times, picks, rows, local, moments, types):
    """Append a row for each edge of a temporal hop, where `relabel_hop` has a row per node."""
    seeds, (offsets, positions), most = hop.seeds, picks, picks[1].numel()
    (indices, at), (edge_times, times_at) = (
        _read_first(part, positions, offsets[-1:]) for part in (indices, edge_times)
    )
    # The rows' `moments` are written, too. Without edge times, they are those of the column.
    given = seeds, seeds.numel(), hop.num_seeds, indices, at, offsets, most, *hop.moments, edge_times, times_at
    ends = types.neighbor_starts, types.row_starts, types.next_parts
    launch("append_rows", rows.numel(), *given, rows, local, *moments, *ends)


def clean_seeds(seeds, types, clean, is_wrong):
    """Copy seeds, replacing ids out of range by -1; set `is_wrong`, initially 0, to 1 if there are any."""
    # Where the seeds of each node type start, and its first id: ids within a type become ids of the graph.
    (starts, first_ids), count = types, seeds.numel()
    launch("clean_seeds", count, seeds, count, starts, first_ids, first_ids.numel() - 1, clean, is_wrong)


def compact_typed_hop(hop, graph, picks, types, ranks, written, slots):
    """Group the edges of a hop by edge type, and relabel their sources within their node type."""
    # `written`: rows as ids of the graph, and as ids within their node type; the column starts of each edge type; the
    # edges in that order, and their sources as positions.
    (edge_types, indices), (offsets, positions), (rows, own_ids, indptr, grouped, local) = graph, picks, written
    starts = types.seed_starts
    before = _group(edge_types, positions, offsets, starts, types.parts, ranks, indptr, grouped)
    neighbors, at = _read_first(indices, grouped, offsets[-1:])
    nodes = HopNodes(hop.seeds, neighbors, positions.numel(), at, hop.num_seeds, offsets[-1:], slots)
    relabel_by_type(nodes, types._replace(edges_before=before), rows, own_ids, local)
