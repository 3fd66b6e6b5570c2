"""The nodes that a sampler starts from, for seeds that are nodes and seeds that are edges."""

from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.ops.arguments import as_ids
from graphfeed.ops.structure import unique_and_compact
from graphfeed.storage.graph import ByType, seed_type_str_to_ntypes


def given_seeds(minibatch: MiniBatch) -> ByType:
    """Return the seeds of a mini-batch as tensors, or raise if it has none, as rows of items without names do."""
    given: Any = getattr(minibatch, "seeds", None)
    if given is None:
        raise ValueError("the mini-batch has no seeds; name them in the item set: names='seeds'")
    seeds: ByType = (
        {seed_type: as_ids(f"seeds[{seed_type!r}]", part) for seed_type, part in given.items()}
        if isinstance(given, dict)
        else as_ids("seeds", given)
    )
    for part in seeds.values() if isinstance(seeds, dict) else (seeds,):
        if part.dim() not in (1, 2):
            raise ValueError(
                f"seeds must be nodes, shape (N,), or edges, shape (N, 2), or (N, k), but have shape {list(part.shape)}"
            )
    return seeds


def node_seeds(seeds: ByType) -> tuple[ByType, ByType | None]:
    """Return the nodes to sample from, and edge seeds as positions in them; node seeds stay as they are."""
    if isinstance(seeds, torch.Tensor):
        if seeds.dim() == 1:
            return seeds, None
        # The ends of edges are taken once each, in order of first appearance, row by row.
        nodes, (local,), _ = unique_and_compact([seeds.reshape(-1)])
        return nodes, local.reshape(seeds.shape)
    if not seeds or any(part.dim() == 1 for part in seeds.values()):
        return seeds, None
    # For each edge type in turn, first all sources and then all destinations go to the list of their node type.
    columns: dict[str, list[torch.Tensor]] = {}
    for seed_type, part in seeds.items():
        for node_type, column in zip(seed_type_str_to_ntypes(seed_type, part.shape[1]), part.unbind(1), strict=True):
            columns.setdefault(node_type, []).append(column)
    nodes_of, positions, _ = unique_and_compact(columns)
    # The positions of a type come in the order in which its columns were put there.
    compacted = {
        seed_type: torch.stack(
            [positions[node_type].pop(0) for node_type in seed_type_str_to_ntypes(seed_type, part.shape[1])], dim=1
        )
        for seed_type, part in seeds.items()
    }
    return nodes_of, compacted


def timed_node_seeds(seeds: ByType, timestamps: ByType) -> tuple[ByType, ByType | None, ByType]:
    """As `node_seeds`, and the time of each node; a node at two times counts as two."""
    if isinstance(seeds, torch.Tensor):
        if not isinstance(timestamps, torch.Tensor):
            raise TypeError(f"timestamp is a {type(timestamps).__name__}, but seeds is a tensor; give a tensor")
        times = times_of_rows("seeds", seeds, timestamps)
        if seeds.dim() == 1:
            return seeds, None, times
        positions = torch.arange(seeds.numel(), dtype=seeds.dtype, device=seeds.device).reshape(seeds.shape)
        return seeds.reshape(-1), positions, times.reshape(-1)
    if not isinstance(timestamps, dict) or set(timestamps) != set(seeds):
        raise TypeError("timestamp must be a dict with the types of seeds; name the item set's members for each type")
    times_of = {name: times_of_rows(f"seeds[{name!r}]", part, timestamps[name]) for name, part in seeds.items()}
    if not seeds or any(part.dim() == 1 for part in seeds.values()):
        return seeds, None, times_of
    nodes: dict[str, list[torch.Tensor]] = {}
    node_times: dict[str, list[torch.Tensor]] = {}
    compacted = {}
    for seed_type, part in seeds.items():
        columns = []
        node_types = seed_type_str_to_ntypes(seed_type, part.shape[1])
        for node_type, column, times in zip(node_types, part.unbind(1), times_of[seed_type].unbind(1), strict=True):
            # Behind the nodes of this type that there are already.
            first = sum(len(ids) for ids in nodes.get(node_type, ()))
            columns.append(torch.arange(first, first + len(column), dtype=column.dtype, device=column.device))
            nodes.setdefault(node_type, []).append(column)
            node_times.setdefault(node_type, []).append(times)
        compacted[seed_type] = torch.stack(columns, dim=1)
    joined = {node_type: torch.cat(parts) for node_type, parts in nodes.items()}
    return joined, compacted, {node_type: torch.cat(parts) for node_type, parts in node_times.items()}


def times_of_rows(name: str, seeds: torch.Tensor, timestamps: torch.Tensor) -> torch.Tensor:
    """Return the time of each seed, in the shape of the seeds: the given times, then each again per negative."""
    given = len(timestamps)
    if timestamps.dim() > 1 and timestamps.shape[1:] != seeds.shape[1:]:
        raise ValueError(
            f"{name} has shape {tuple(seeds.shape)}, but its timestamps {tuple(timestamps.shape)}; "
            "give one per row, or one per node in the shape of the seeds"
        )
    if len(seeds) != given and (seeds.dim() == 1 or given == 0 or len(seeds) % given):
        raise ValueError(
            f"{name} has {len(seeds)} rows, but {given} timestamps; give one per seed, without the negatives"
        )
    if len(seeds) != given:
        # Edges beyond the number of times are negatives, the same number for each time, in the order of the times.
        timestamps = torch.cat([timestamps, timestamps.repeat_interleave(len(seeds) // given - 1, dim=0)])
    return timestamps if timestamps.dim() == seeds.dim() else timestamps[:, None].expand(seeds.shape)
