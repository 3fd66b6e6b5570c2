"""Launches of the kernels that relabel nodes; perhaps only the GPU knows how many there are."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from graphfeed.ops.cuda.launch import launch


class HopNodes(NamedTuple):
    """The nodes of a hop: seeds and neighbours, of which perhaps the CPU only knows how many fit."""

    seeds: torch.Tensor
    neighbors: torch.Tensor
    """The neighbours, or an array that holds them."""
    most: int
    """How many neighbours there are, or may be."""
    positions: torch.Tensor | None = None
    """Where the neighbours are in that array; None if they come one after the other."""
    num_seeds: torch.Tensor | None = None
    """What only the GPU knows; None: all. So are the neighbours."""
    num_neighbors: torch.Tensor | None = None
    slots: torch.Tensor | None = None
    """What `new_slots` makes for as many nodes; None: made when it is needed."""


class HopTypes(NamedTuple):
    """The types of a hop's nodes: int64, on the GPU. Edge types are in the order in which new nodes are counted."""

    seed_starts: torch.Tensor
    """Where each node type's seeds start."""
    sources: torch.Tensor
    """Node type of each edge type's neighbours."""
    neighbor_starts: torch.Tensor
    """Where each edge type's neighbours start; written if there are `edges_before`."""
    shifts: torch.Tensor
    """Written: what is added to the number of new nodes before a neighbour to get its position."""
    row_starts: torch.Tensor
    """Written: where each node type's rows start."""
    first_ids: torch.Tensor | None = None
    """The first id of each node type, if ids inside of it are wanted, too."""
    destinations: torch.Tensor | None = None
    """Node type of each edge type's columns."""
    parts: torch.Tensor | None = None
    """Where each edge type's column starts start."""
    edges_before: torch.Tensor | None = None
    """How many edges come before each of these."""
    next_parts: torch.Tensor | None = None
    """Written: the parts of the next hop."""


def relabel(nodes: HopNodes, rows: torch.Tensor, local: torch.Tensor, *ends: torch.Tensor | None) -> None:
    """Write each node once, seeds first, the neighbours as positions among these, and where the one type ends.

    There are three ends, each written behind the first number of an array, which may be None: that of the neighbours,
    of the rows, and of the next hop's column starts.
    """
    _place(nodes, _enter(nodes), (None, None, 0, None, None, None, 0, None), (rows, None, local, *ends))


def relabel_by_type(
    nodes: HopNodes, types: HopTypes, rows: torch.Tensor, own_ids: torch.Tensor | None, local: torch.Tensor
) -> None:
    """Write each node once, type after type, seeds first, and the neighbours as positions in their type."""
    table, kinds, edge_types = _enter(nodes), types.row_starts.numel() - 1, types.sources.numel()
    # One block: types are few, and so the CPU need not wait for the counts.
    launch(
        "count_rows", 1,
        table[-1], types.edges_before, types.parts, types.seed_starts, kinds, types.sources, types.destinations,
        edge_types, types.neighbor_starts, types.shifts, types.row_starts, types.next_parts,
    )  # fmt: skip
    given = types.seed_starts, types.row_starts, kinds, types.neighbor_starts, types.sources, types.shifts, edge_types
    _place(nodes, table, (*given, types.first_ids), (rows, own_ids, local, None, None, None))


def new_slots(counts: Sequence[int], ids: torch.Tensor) -> list[torch.Tensor]:
    """Return an empty hash table for each number of nodes with such ids: ids and their first items."""
    dtype = ids.dtype if max(counts) <= torch.iinfo(ids.dtype).max else torch.int64
    # Powers of two, of which at most half are used.
    sizes = [2 << (2 * count + 1).bit_length() for count in counts]
    # One call fills all.
    return [part.view(2, -1) for part in torch.full((sum(sizes),), -1, dtype=dtype, device=ids.device).split(sizes)]


def _enter(nodes):
    """Enter all ids into a hash table at once; an id's first appearance is the minimum of its places."""
    seeds, neighbors, most, positions, num_seeds, num_neighbors, table = nodes
    count, device = seeds.numel(), seeds.device
    slots = torch.empty(count + most, dtype=torch.int64, device=device)
    keys, first = new_slots([slots.numel()], seeds)[0] if table is None else table
    launch(
        "enter_nodes", slots.numel(),
        neighbors, positions, seeds, count, num_seeds, most, num_neighbors, keys, first, keys.numel() - 1, slots,
    )  # fmt: skip
    before = torch.empty(most + 1, dtype=torch.int64, device=device)
    launch("mark_new", most + 1, slots, first, count, most, num_neighbors, before)
    # The slot of each item, the ids in the slots, their first items, and the new nodes before each neighbour.
    return slots, keys, first, before.cumsum_(0)


def _place(nodes, table, types, written):
    """Write the rows, and the neighbours as positions in them, of what `_enter` returned."""
    seeds, most, num_seeds, num_neighbors = nodes.seeds, nodes.most, nodes.num_seeds, nodes.num_neighbors
    given = seeds, seeds.numel(), num_seeds, most, num_neighbors
    launch("place_nodes", seeds.numel() + most, *given, *table, *types, *written)
