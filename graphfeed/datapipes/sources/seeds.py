"""The nodes that a sampler starts from, for node seeds and edge seeds."""

from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.ops.arguments import as_ids, check_ids, kind_of
from graphfeed.ops.structure import unique_and_compact
from graphfeed.storage.graph import ByType, seed_type_str_to_ntypes

PER_ITEM = ("timestamp", "pre_time_window")
"""Fields with one value per item and none for negatives."""


def given_seeds(minibatch: MiniBatch) -> ByType:
    """Return the seeds of a mini-batch as tensors. Raises a ValueError if there are none, such as for unnamed items."""
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
    """Return the nodes to sample from, and edge seeds as positions in them. Node seeds are returned unchanged."""
    if isinstance(seeds, torch.Tensor):
        if seeds.dim() == 1:
            return seeds, None
        # The distinct endpoints in order of first appearance, row by row.
        nodes, (local,), _ = unique_and_compact([seeds.reshape(-1)])
        return nodes, local.reshape(seeds.shape)
    if not seeds or any(part.dim() == 1 for part in seeds.values()):
        return seeds, None
    # For each edge type in turn, all sources and then all destinations are appended to the list of their node type.
    columns: dict[str, list[torch.Tensor]] = {}
    for seed_type, part in seeds.items():
        for node_type, column in zip(seed_type_str_to_ntypes(seed_type, part.shape[1]), part.unbind(1), strict=True):
            columns.setdefault(node_type, []).append(column)
    nodes_of, positions, _ = unique_and_compact(columns)
    # The positions of a type are in the order in which its columns were appended.
    compacted = {
        seed_type: torch.stack(
            [positions[node_type].pop(0) for node_type in seed_type_str_to_ntypes(seed_type, part.shape[1])], dim=1
        )
        for seed_type, part in seeds.items()
    }
    return nodes_of, compacted


def timed_node_seeds(
    seeds: ByType, timestamps: ByType, indexes: Any = None, field: str = "timestamp"
) -> tuple[ByType, ByType | None, ByType]:
    """Like `node_seeds`, but with the time of each node and without merging nodes. See `spread_to_seeds`."""
    times_of: Any = spread_by_type(seeds, timestamps, indexes, field)
    if isinstance(seeds, torch.Tensor):
        times = times_of_nodes(seeds, times_of)
        if seeds.dim() == 1:
            return seeds, None, times
        positions = torch.arange(seeds.numel(), dtype=seeds.dtype, device=seeds.device).reshape(seeds.shape)
        return seeds.reshape(-1), positions, times.reshape(-1)
    times_of = {name: times_of_nodes(part, times_of[name]) for name, part in seeds.items()}
    if not seeds or any(part.dim() == 1 for part in seeds.values()):
        return seeds, None, times_of
    nodes: dict[str, list[torch.Tensor]] = {}
    node_times: dict[str, list[torch.Tensor]] = {}
    compacted = {}
    for seed_type, part in seeds.items():
        columns = []
        node_types = seed_type_str_to_ntypes(seed_type, part.shape[1])
        for node_type, column, times in zip(node_types, part.unbind(1), times_of[seed_type].unbind(1), strict=True):
            # After the nodes of this type so far.
            first = sum(len(ids) for ids in nodes.get(node_type, ()))
            columns.append(torch.arange(first, first + len(column), dtype=column.dtype, device=column.device))
            nodes.setdefault(node_type, []).append(column)
            node_times.setdefault(node_type, []).append(times)
        compacted[seed_type] = torch.stack(columns, dim=1)
    joined = {node_type: torch.cat(parts) for node_type, parts in nodes.items()}
    return joined, compacted, {node_type: torch.cat(parts) for node_type, parts in node_times.items()}


def times_of_nodes(seeds: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    """Return times in the shape of the seeds: both endpoints of an edge have the time of its row."""
    return times if times.dim() == seeds.dim() else times[:, None].expand(seeds.shape)


def spread_over_rows(minibatch: MiniBatch, field: str) -> ByType | None:
    """Return a field with one value per item, such as `timestamp`, with one value per row of the seeds."""
    values = getattr(minibatch, field)
    return None if values is None else spread_by_type(given_seeds(minibatch), values, minibatch.indexes, field)


def spread_by_type(seeds: ByType, values: Any, indexes: Any, field: str) -> ByType:
    if isinstance(seeds, torch.Tensor):
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"{field} is {kind_of(values)}, but seeds is a tensor; give a tensor")
        return spread_to_seeds("seeds", seeds, values, indexes, field)
    if not isinstance(values, dict) or set(values) != set(seeds):
        raise TypeError(f"{field} must be a dict with the types of seeds; name the item set's members for each type")
    known = indexes if isinstance(indexes, dict) else {}
    return {
        kind: spread_to_seeds(f"seeds[{kind!r}]", part, values[kind], known.get(kind), field)
        for kind, part in seeds.items()
    }


def spread_to_seeds(
    name: str, seeds: torch.Tensor, values: torch.Tensor, indexes: torch.Tensor | None, field: str = "timestamp"
) -> torch.Tensor:
    """Return the values of items for each row of the seeds. A negative has the value of the edge that it belongs to.

    Args:
        name: Name of the seeds in error messages.
        seeds: Nodes or edges. If there are as many as values, the values are returned unchanged.
        values: One per item, shape (items,), or one per node, in the shape of the seeds.
        indexes: Position of the item that each row belongs to. None: each item has the same number of negatives, which
            follow all items in their order, as in `with_negatives`.
        field: Name of the values in error messages.

    Raises:
        ValueError: The values have another shape, or the item of a row is unknown.
    """
    given, count = len(values), len(seeds)
    if values.dim() > 1 and values.shape[1:] != seeds.shape[1:]:
        raise ValueError(
            f"{name} has shape {tuple(seeds.shape)}, but its {field}s {tuple(values.shape)}; "
            "give one per row, or one per node in the shape of the seeds"
        )
    if given == count:
        return values
    if indexes is None and seeds.dim() > 1 and given and count % given == 0:
        indexes = usual_indexes(given, count, values.device)
    if indexes is None or len(indexes) != count:
        raise ValueError(
            f"{name} has {count} rows, but {given} {field}s; give one per seed, or set indexes to the position "
            "of each row's item, as negative samplers do"
        )
    check_ids(f"indexes of {name} with {given} {field}s", indexes, given)
    return values[indexes.to(values.device)]


def usual_indexes(num_positives: int, num_rows: int, device: torch.device) -> torch.Tensor:
    """Return the edge that each row belongs to if all edges come first, then the negatives of each edge in turn."""
    own = torch.arange(num_positives, device=device)
    ratio = num_rows // max(num_positives, 1) - 1
    return torch.cat([own, own.repeat_interleave(max(ratio, 0))])
