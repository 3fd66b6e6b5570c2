"""The nodes from which a sampler starts, when the seeds are nodes and when they are edges."""

import torch

from graphfeed.ops import compact
from graphfeed.storage.sampled_subgraph import ByType


def unique(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each id once in order of first appearance, and the place of each in that list."""
    result = compact(ids[:0], ids)
    return result.rows, result.local


def node_seeds(seeds: ByType) -> tuple[ByType, ByType | None]:
    """Return the nodes to sample from, and edge seeds as positions in them.

    Node seeds stay as they are, doubles included. The ends of edge seeds are taken once each, in order of first
    appearance: row by row where there is one type; else for each edge type in turn first all sources, then all
    destinations, into the list of their node type.

    Args:
        seeds: Shape (N,), or (N, k); a dict of those by node type, edge type, or node types joined by ":".
    """
    if isinstance(seeds, torch.Tensor):
        if seeds.dim() == 1:
            return seeds, None
        nodes, local = unique(seeds.reshape(-1))
        return nodes, local.reshape(seeds.shape)
    if not seeds or any(part.dim() == 1 for part in seeds.values()):
        return seeds, None
    columns: dict[str, list[torch.Tensor]] = {}
    for seed_type, part in seeds.items():
        for kind, column in zip(end_types(seed_type, part.shape[1]), part.unbind(1), strict=True):
            columns.setdefault(kind, []).append(column)
    nodes_of, places = {}, {}
    for kind, parts in columns.items():
        nodes_of[kind], local = unique(torch.cat(parts))
        places[kind] = list(torch.split(local, [len(part) for part in parts]))
    compacted = {
        seed_type: torch.stack([places[kind].pop(0) for kind in end_types(seed_type, part.shape[1])], dim=1)
        for seed_type, part in seeds.items()
    }
    return nodes_of, compacted


def end_types(seed_type: str, size: int) -> list[str]:
    """Return the node type of each column of edge seeds.

    Raises:
        ValueError: The type names another number of nodes than the seeds have columns.
    """
    parts = seed_type.split(":")
    if size == 2 and len(parts) == 3:
        return [parts[0], parts[2]]
    if len(parts) == size:
        return parts
    raise ValueError(
        f"seeds of type {seed_type!r} have {size} columns; name an edge 'source:relation:destination', "
        "a hyperlink by its node types joined by ':'"
    )
