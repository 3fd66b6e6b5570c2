"""Launches of the kernels that relabel nodes. The number of nodes may only be known on the GPU."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.structure.running_sum import add_up, filled
from graphfeed.ops.memory import buffers


class HopNodes(NamedTuple):
    """The seeds and neighbours of a hop. The CPU may only know their maximum numbers."""

    seeds: torch.Tensor
    neighbors: torch.Tensor
    """The neighbours, or an array that contains them."""
    most: int
    """Number of neighbours, or its maximum."""
    positions: torch.Tensor | None = None
    """Positions of the neighbours in that array. None: `neighbors` only has the neighbours, in order."""
    num_seeds: torch.Tensor | None = None
    """On the GPU: the actual numbers of seeds and neighbours. None: the maximum."""
    num_neighbors: torch.Tensor | None = None
    slots: torch.Tensor | None = None
    """A hash table from `new_slots` for the maximum number of nodes. None: created when needed."""


class HopTypes(NamedTuple):
    """The types of a hop's nodes: int64, on the GPU. Edge types are in the order in which new nodes are numbered."""

    seed_starts: torch.Tensor
    """Where the seeds of each node type start."""
    sources: torch.Tensor
    """Source node type of each edge type."""
    neighbor_starts: torch.Tensor
    """Where the neighbours of each edge type start. Written if `edges_before` is given."""
    shifts: torch.Tensor
    """Written: added to the number of new nodes before a neighbour to get its position."""
    row_starts: torch.Tensor
    """Written: where the rows of each node type start."""
    first_ids: torch.Tensor | None = None
    """The first id of each node type, if ids within the type are written, too."""
    destinations: torch.Tensor | None = None
    """Destination node type of each edge type."""
    parts: torch.Tensor | None = None
    """Where the column starts of each edge type begin."""
    edges_before: torch.Tensor | None = None
    """Number of edges before each column start."""
    next_parts: torch.Tensor | None = None
    """Written: `parts` of the next hop."""


def relabel(nodes: HopNodes, rows: torch.Tensor, local: torch.Tensor, *ends: torch.Tensor | None) -> None:
    """Write the rows (seeds, then new nodes), the neighbours as positions among them, and the ends of three arrays.

    These are the numbers of neighbours, of rows, and of the next hop's column starts. Each is written to the second
    element of one of `ends`, which may be None.
    """
    _place(nodes, _enter(nodes), (None, None, 0, None, None, None, 0, None), (rows, None, local, *ends))


def relabel_by_type(
    nodes: HopNodes, types: HopTypes, rows: torch.Tensor, own_ids: torch.Tensor | None, local: torch.Tensor
) -> None:
    """Write the rows of each type (seeds, then new nodes), and the neighbours as positions in their type."""
    table, kinds, edge_types = _enter(nodes), types.row_starts.numel() - 1, types.sources.numel()
    # A single block, as there are few types. It avoids a synchronization to read the counts.
    launch(
        "count_rows", 1,
        table[-1], types.edges_before, types.parts, types.seed_starts, kinds, types.sources, types.destinations,
        edge_types, types.neighbor_starts, types.shifts, types.row_starts, types.next_parts,
    )  # fmt: skip
    given = types.seed_starts, types.row_starts, kinds, types.neighbor_starts, types.sources, types.shifts, edge_types
    _place(nodes, table, (*given, types.first_ids), (rows, own_ids, local, None, None, None))


def new_slots(counts: Sequence[int], ids: torch.Tensor) -> list[torch.Tensor]:
    """Return an empty hash table for each number of nodes, with ids of the dtype of `ids` and their first items."""
    dtype = ids.dtype if max(counts) <= torch.iinfo(ids.dtype).max else torch.int64
    # Powers of two; at most half of the slots are used.
    sizes = [2 << (2 * count + 1).bit_length() for count in counts]
    # A single call fills all tables.
    return [part.view(2, -1) for part in filled(sum(sizes), -1, dtype, ids.device).split(sizes)]


def _enter(nodes):
    """Insert all ids into a hash table in parallel; the first item of an id is the minimum of its items."""
    seeds, neighbors, most, positions, num_seeds, num_neighbors, table = nodes
    count, device = seeds.numel(), seeds.device
    slots = buffers.empty(count + most, torch.int64, device)
    keys, first = new_slots([slots.numel()], seeds)[0] if table is None else table
    launch(
        "enter_nodes", slots.numel(),
        neighbors, positions, seeds, count, num_seeds, most, num_neighbors, keys, first, keys.numel() - 1, slots,
    )  # fmt: skip
    before = buffers.empty(most + 1, torch.int64, device)
    launch("mark_new", most + 1, slots, first, count, most, num_neighbors, before)
    # The slot of each item, the ids in the slots, their first items, and the number of new nodes before each neighbour.
    return slots, keys, first, add_up(before)


def _place(nodes, table, types, written):
    """Write the rows, and the neighbours as positions in them, with the hash table from `_enter`."""
    seeds, most, num_seeds, num_neighbors = nodes.seeds, nodes.most, nodes.num_seeds, nodes.num_neighbors
    given = seeds, seeds.numel(), num_seeds, most, num_neighbors
    launch("place_nodes", seeds.numel() + most, *given, *table, *types, *written)
