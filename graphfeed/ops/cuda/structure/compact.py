"""Kernel that relabels a mini-batch: node ids become positions, in order of first appearance."""

import torch

from graphfeed.ops.cuda.launch import launch, upload


def compact(seeds, neighbors, parts, keys, node_map, rows, row_starts, local):
    """Relabel neighbours to positions in the row ids of their node type; seeds come first, as they are.

    All ids enter a hash table at once. An id's first appearance is the minimum of its places. This waits for the device
    once, to learn how many rows there are. `parts` and `row_starts` lie on the CPU.
    """
    del node_map
    count, edges, device = seeds.numel(), neighbors.numel(), seeds.device
    size, width = count + edges, seeds.itemsize
    slots = torch.empty(size, dtype=torch.int64, device=device)
    first = torch.full_like(keys, size)
    launch("enter_nodes", size, seeds, neighbors, width, count, size, keys, keys.numel() - 1, slots, first)
    before = torch.zeros(edges + 1, dtype=torch.int64, device=device)
    launch("mark_new", edges, slots, first, count, edges, before[1:])
    before.cumsum_(0)
    seed_starts, neighbor_starts, sources = parts
    shifts = _write_starts(before[upload(neighbor_starts, device)].tolist(), seed_starts, sources, row_starts)
    joined = [seed_starts, row_starts, neighbor_starts, sources, shifts]
    tables = upload(torch.cat(joined), device).split([part.numel() for part in joined])
    launch(
        "place_nodes", size, seeds, neighbors, width, count, size, slots, first, before,
        tables[0], tables[1], row_starts.numel() - 1, *tables[2:], sources.numel(), keys, rows,
    )  # fmt: skip
    launch("relabel", edges, slots[count:], keys, edges, width, local)


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
