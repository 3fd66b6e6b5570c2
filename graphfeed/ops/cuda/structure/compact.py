"""Kernels that relabel a mini-batch: node ids become positions, in order of first appearance."""

import torch

from graphfeed.ops.cuda.launch import launch, upload


def compact(seeds, neighbors, parts, keys, node_map, rows, row_starts, local):
    """Relabel neighbours to positions in the row ids of their node type; seeds come first, as they are.

    This waits for the device once, to learn how many rows there are. `parts` and `row_starts` lie on the CPU.
    """
    del keys, node_map
    items = seeds, None, neighbors.numel(), None
    table = _enter(items, neighbors, None)
    before, device = table[-1], seeds.device
    seed_starts, neighbor_starts, sources = parts
    shifts = _write_starts(before[upload(neighbor_starts, device)].tolist(), seed_starts, sources, row_starts)
    joined = [seed_starts, row_starts, neighbor_starts, sources, shifts]
    tables = upload(torch.cat(joined), device).split([part.numel() for part in joined])
    types = *tables[:2], row_starts.numel() - 1, *tables[2:], sources.numel()
    _place(items, table, types, rows, local, None)


def _enter(items, neighbors, positions):
    """Enter all ids into a hash table at once; an id's first appearance is the minimum of its places.

    Args:
        items: The seeds; how many there are, if only the GPU knows; the same of neighbours: the most, how many.
        neighbors: The neighbours, or an array that holds them.
        positions: Where there; None if they come one after the other.

    Returns:
        The slot of each item, the ids in the slots, their first items, and how many new nodes come before each
        neighbour.
    """
    seeds, num_seeds, most, num_neighbors = items
    count, device = seeds.numel(), seeds.device
    slots = torch.empty(count + most, dtype=torch.int64, device=device)
    # A power of two, of which at most half are used.
    keys, first = torch.full((2, 1 << (2 * slots.numel() + 1).bit_length()), -1, device=device)
    launch(
        "enter_nodes", slots.numel(),
        seeds, neighbors, positions, seeds.itemsize, count, num_seeds, most, num_neighbors, keys, first,
        keys.numel() - 1, slots,
    )  # fmt: skip
    before = torch.empty(most + 1, dtype=torch.int64, device=device)
    launch("mark_new", most + 1, slots, first, count, most, num_neighbors, before)
    return slots, keys, first, before.cumsum_(0)


def _place(items, table, types, rows, local, sizes):
    """Write the rows, and the neighbours as positions in them, of what `_enter` returned."""
    seeds, num_seeds, most, num_neighbors = items
    launch(
        "place_nodes", seeds.numel() + most,
        seeds, seeds.itemsize, seeds.numel(), num_seeds, most, num_neighbors, *table, *types, rows, local, sizes,
    )  # fmt: skip


def _write_starts(new_before, seed_starts, sources, row_starts):
    """Write where each node type's rows start; return what to add to a new node's rank to get its position.

    Args:
        new_before: How many new nodes there are before each edge type's neighbours, and in all.
        seed_starts: Where each node type's seeds start.
        sources: Node type of each edge type's neighbours.
        row_starts: Written.
    """
    known = (seed_starts[1:] - seed_starts[:-1]).tolist()
    shifts = []
    for edge_type, kind in enumerate(sources.tolist()):
        shifts.append(known[kind] - new_before[edge_type])
        known[kind] += new_before[edge_type + 1] - new_before[edge_type]
    row_starts[0] = 0
    torch.cumsum(torch.tensor(known, dtype=torch.int64), 0, out=row_starts[1:])
    return torch.tensor(shifts, dtype=torch.int64)
