"""Relabel the nodes of a mini-batch, from ids of the graph to positions."""

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import MOST_VALUES, bounds, check_bounds, check_count, check_length, check_vector
from graphfeed.ops.backend import kernels, on_gpu
from graphfeed.ops.cpu.structure.compact import Parts
from graphfeed.ops.memory import buffers

SMALL_MAP = 1 << 22
"""Without `num_nodes`, a dense map is used if the largest id is below this; it takes at most 16 MB."""
FEWEST = 1 << 7
"""Up to this many ids are relabelled with a dict."""
FEW = 1 << 12
"""Without `num_nodes`, fewer neighbours than this are hashed, because a new map would cost more."""


class Compacted(NamedTuple):
    """Row ids, and the neighbours as positions among them."""

    rows: torch.Tensor
    """Ids: for each node type its seeds, duplicates included, then new nodes in order of first appearance."""
    row_starts: torch.Tensor
    """int64, shape (node types + 1,), on the CPU: where the rows of each type begin."""
    local: torch.Tensor
    """The neighbours as positions in the rows of their node type."""


def compact(seeds: torch.Tensor, neighbors: torch.Tensor, *, num_nodes: int | None = None) -> Compacted:
    """Relabel the nodes of a hop: seeds first, duplicates included, then new neighbours in order of first appearance.

    Neighbours refer to the first of duplicate seeds. Each neighbour costs one random read if a dense map of
    `num_nodes`, an upper bound of the ids, fits the memory limit; otherwise a hash lookup. All ids have the same dtype,
    int32 or int64. On a GPU, ids are always hashed.

    Raises:
        ValueError: An id is negative or not below `num_nodes`. Ids on a GPU are not checked.

    Example:
        >>> compact(torch.tensor([7, 3]), torch.tensor([5, 3, 5, 9])).rows.tolist()
        [7, 3, 5, 9]
    """
    check_vector("seeds", seeds)
    check_vector("neighbors", neighbors)
    if seeds.dtype != neighbors.dtype:
        raise TypeError(f"seeds and neighbors must have one dtype, but are {seeds.dtype} and {neighbors.dtype}")
    if num_nodes is None and seeds.is_cpu and neighbors.is_cpu and seeds.numel() + neighbors.numel() <= FEWEST:
        check_nodes(seeds, neighbors, num_nodes)
        return compact_few(seeds, neighbors)
    starts = np.array([[0, seeds.numel()], [0, neighbors.numel()], [0, 0]])
    seed_starts, neighbor_starts, sources = map(torch.from_numpy, starts)
    return compact_parts(seeds, neighbors, seed_starts, neighbor_starts, sources[:1], num_nodes)


class Marked(NamedTuple):
    """Selected ids, relabelled."""

    places: torch.Tensor
    """int64: positions of the selected ids."""
    rows: torch.Tensor
    """The distinct selected ids in order of first appearance."""
    local: torch.Tensor
    """The selected ids as positions in `rows`."""
    least: int
    """The smallest of all ids, selected or not; 0 if there are none."""


def compact_marked(ids: torch.Tensor, marks: torch.Tensor | None = None) -> Marked:
    """Relabel the ids that `marks` selects (bool; None: all) by first appearance. Synchronizes once with a GPU.

    Raises:
        ValueError: The numbers of ids and marks differ, or a selected id on the CPU is negative.

    Example:
        >>> compact_marked(torch.tensor([7, 3, 9, 7]), torch.tensor([True, False, True, True])).rows
        tensor([7, 9])
    """
    check_vector("ids", ids)
    size = ids.numel()
    if marks is not None:
        check_vector("marks", marks, (torch.bool,))
        check_length("marks", marks, size, "id")
    places = torch.arange(size, device=ids.device)
    if size == 0 or not on_gpu(ids):
        places = places if marks is None else marks.nonzero().flatten()
        rows, _, local = compact(ids[:0], ids if marks is None else ids[places])
        return Marked(places, rows, local, bounds(ids)[0] if size else 0)
    module = kernels("structure.relabel", ids)
    nodes = module.HopNodes(ids[:0], ids.contiguous(), size)
    if marks is not None:
        before = marks.cumsum(0)
        places = torch.searchsorted(before, places, right=True)
        nodes = nodes._replace(positions=places, num_neighbors=before[-1:])
    rows, local = (buffers.empty(size, ids.dtype, ids.device) for _ in range(2))
    ends = torch.empty(4, dtype=torch.int64, device=ids.device)
    module.relabel(nodes, rows, local, ends, ends[1:], ends[2:])
    # One transfer for all numbers, because each transfer synchronizes.
    count, distinct, least = torch.cat([ends[1:3], ids.amin(0, keepdim=True)]).tolist()
    return Marked(places[:count], rows[:distinct], local[:count], least)


def compact_parts(
    seeds: torch.Tensor,
    neighbors: torch.Tensor,
    seed_starts: torch.Tensor,
    neighbor_starts: torch.Tensor,
    sources: torch.Tensor,
    num_nodes: int | None,
) -> Compacted:
    """Like `compact`, for several types. Only ids are checked.

    Args:
        seeds, neighbors: Node ids, grouped by node type and by edge type; ids of different types must differ.
        seed_starts: int64, shape (node types + 1,), on the CPU: where the seeds of each node type begin.
        neighbor_starts: int64, shape (edge types + 1,), on the CPU: where the neighbours of each edge type begin.
        sources: int64, on the CPU: source node type of each edge type.
    """
    largest, size = check_nodes(seeds, neighbors, num_nodes), neighbors.numel()
    module = kernels("structure.compact", seeds, neighbors=neighbors)
    parts = Parts(seed_starts.contiguous(), neighbor_starts.contiguous(), sources.contiguous())
    given = seeds.contiguous(), neighbors.contiguous(), parts
    rows = buffers.empty(seeds.numel() + size, seeds.dtype, seeds.device)
    row_starts = torch.empty(seed_starts.numel(), dtype=torch.int64, device="cpu")
    local = buffers.empty(size, seeds.dtype, seeds.device)
    if on_gpu(seeds):
        module.compact(*given, None, None, rows, row_starts, local)
        return Compacted(rows[: int(row_starts[-1])], row_starts, local)
    # Size of the dense map; None: ids are hashed.
    map_size = num_nodes
    if num_nodes is None and size >= FEW and largest < SMALL_MAP:
        map_size = 1 << (largest + 1).bit_length()
    with nullcontext() if map_size is None else buffers.NODE_MAPS.leased_map(map_size) as node_map:
        # A power of two; at most half of the slots are used.
        slots = 1 << (2 * rows.numel() + 1).bit_length() if node_map is None else 0
        keys = torch.full((slots,), -1, dtype=torch.int64, device="cpu")
        hashed = torch.full((keys.numel(),), -1, dtype=torch.int32, device="cpu")
        module.compact(*given, keys, hashed if keys.numel() else node_map, rows, row_starts, local)
    found = buffers.pinned_tensor(rows.numpy())[: int(row_starts[-1])]
    return Compacted(buffers.as_tensor(found), row_starts, local)


def compact_few(seeds: torch.Tensor, neighbors: torch.Tensor) -> Compacted:
    """Like `compact`, for few ids of one type, with a dict: three times as fast as a kernel."""
    rows, places, local = seeds.tolist(), dict[int, int](), []
    for row, node in enumerate(rows):
        places.setdefault(node, row)
    for node in neighbors.tolist():
        local.append(places.setdefault(node, len(rows)))
        if local[-1] == len(rows):
            rows.append(node)
    ids, dtype = buffers.NUMPY_DTYPES[seeds.dtype], buffers.NUMPY_DTYPES[neighbors.dtype]
    arrays = np.array(rows, ids), np.array([0, len(rows)]), np.array(local, dtype)
    return Compacted(*map(torch.from_numpy, arrays))


def check_nodes(seeds: torch.Tensor, neighbors: torch.Tensor, num_nodes: int | None) -> int:
    """Return the largest id; raise unless all are in `0 .. num_nodes - 1`. Ids on a GPU are not checked."""
    if num_nodes is not None:
        check_count("num_nodes", num_nodes, 0, MOST_VALUES)
    largest = -1
    for name, ids in (("seeds", seeds), ("neighbors", neighbors)) if seeds.is_cpu else ():
        low, high = bounds(ids) if ids.numel() else (0, -1)
        if num_nodes is not None:
            check_bounds(name, (low, high), num_nodes, ValueError)
        elif low < 0:
            raise ValueError(f"{name} must be ids of 0 or more, but hold {low}")
        largest = max(largest, high)
    return largest
