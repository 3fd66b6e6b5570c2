"""Relabelling of sampled columns; these functions are also for user-defined samplers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import torch

from graphfeed.ops import CompletedFuture, check_one_rank
from graphfeed.ops.arguments import are_below, bounds, checked, kind_of
from graphfeed.ops.structure import compact, compact_parts, expand_indptr
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph, mark_sampled
from graphfeed.storage.graph.type_names import EdgeType, NodeType, ends_of, from_type_dict, to_type_dict, with_all_types

ByEdgeType: TypeAlias = Mapping[str, CSCFormatBase]
Compacted: TypeAlias = tuple[torch.Tensor, CSCFormatBase, torch.Tensor]
CompactedByType: TypeAlias = tuple[dict[str, torch.Tensor], dict[str, CSCFormatBase], dict[str, torch.Tensor]]


# fmt: off
@overload
def unique_and_compact_csc_formats(
    csc_formats: CSCFormatBase, unique_dst_nodes: torch.Tensor, rank: int = 0, world_size: int = 1,
    async_op: Literal[False] = False,
) -> Compacted: ...


@overload
def unique_and_compact_csc_formats(
    csc_formats: ByEdgeType, unique_dst_nodes: Mapping[str, torch.Tensor], rank: int = 0, world_size: int = 1,
    async_op: Literal[False] = False,
) -> CompactedByType: ...


@overload
def unique_and_compact_csc_formats(
    csc_formats: CSCFormatBase, unique_dst_nodes: torch.Tensor, rank: int = 0, world_size: int = 1, *,
    async_op: Literal[True],
) -> CompletedFuture[Compacted]: ...


@overload
def unique_and_compact_csc_formats(
    csc_formats: ByEdgeType, unique_dst_nodes: Mapping[str, torch.Tensor], rank: int = 0, world_size: int = 1, *,
    async_op: Literal[True],
) -> CompletedFuture[CompactedByType]: ...
# fmt: on


@checked
def unique_and_compact_csc_formats(
    csc_formats: CSCFormatBase | ByEdgeType,
    unique_dst_nodes: torch.Tensor | Mapping[str, torch.Tensor],
    rank: int = 0,
    world_size: int = 1,
    async_op: bool = False,
) -> Any:
    """Relabel sampled columns: seeds first, duplicates included, then new sources in order of first appearance.

    The row ids begin with the seeds for every node type that has seeds, even if it is the source of no edge type, so
    that destinations have features and a self term. Node types are in the order of the seeds, then of the edge types.

    Args:
        csc_formats: Columns with the ids of the graph; by edge type if the graph has types.
        unique_dst_nodes: Ids of the columns; by node type if the graph has types. Missing types have no columns.
        rank: Only 0, with a `world_size` of 1: ids are not distributed over ranks.
        async_op: Whether to return a future with the result, which is computed before this function returns.

    Returns:
        The row ids, the columns with positions in the row ids, and the bounds of the rows (0 and the number of rows);
        each by type if the graph has types.

    Raises:
        TypeError: Only one of the arguments is by type, or the ids have different dtypes.
        ValueError: The numbers of columns and seeds differ, an id is negative, or there are several ranks.

    Example:
        >>> csc = CSCFormatBase(torch.tensor([0, 2, 3]), torch.tensor([8, 5, 8]))
        >>> rows, compacted, _ = unique_and_compact_csc_formats(csc, torch.tensor([5, 6]))
        >>> rows, compacted.indices
        (tensor([5, 6, 8]), tensor([2, 0, 2]))
    """
    check_one_rank(rank, world_size)
    rows, compacted = merge_sources(*columns_by_type(csc_formats, unique_dst_nodes))
    offsets = {node_type: as_counts([0, ids.numel()]) for node_type, ids in rows.items()}
    result = tuple(map(from_type_dict, (rows, compacted, offsets)))
    return CompletedFuture(result) if async_op else result


def merge_sources(
    cscs: Mapping[EdgeType, CSCFormatBase],
    seeds: Mapping[NodeType, torch.Tensor],
    num_nodes: Mapping[NodeType, int] | None = None,
) -> tuple[dict[NodeType, torch.Tensor], dict[EdgeType, CSCFormatBase]]:
    """Return the row ids by node type, seeds first, then new nodes without duplicates; and the relabelled columns.

    `seeds` must have every node type, possibly empty. Ids must be below `num_nodes` if it is given.
    """
    if None in cscs and seeds[None].is_cpu:
        # For few ids, this is twice as fast as the code for types.
        bound = None if num_nodes is None else num_nodes[None]
        nodes, _, places = compact(seeds[None], cscs[None].indices, num_nodes=bound)
        return {None: nodes}, {None: CSCFormatBase.unchecked(cscs[None].indptr, places)}
    rows: dict[NodeType, torch.Tensor] = {}
    local: dict[EdgeType, torch.Tensor] = {}
    met = [name for name, csc in cscs.items() if csc.indices.numel() > 0]
    # With `num_nodes`, the ids of all types fit into one range and need one call; otherwise, each type has a call.
    for node_types in [[node_type] for node_type in seeds] if num_nodes is None else [list(num_nodes)]:
        sizes = list(accumulate(() if num_nodes is None else num_nodes.values(), initial=0))
        own = {name: node_types.index(source) for name in met if (source := ends_of(name)[0]) in node_types}
        ids = [shift(seeds[node_type], size) for node_type, size in zip(node_types, sizes, strict=False)]
        neighbors = [shift(cscs[name].indices, sizes[source]) for name, source in own.items()] or [ids[0][:0]]
        # With the numbers of nodes, ids were checked against them.
        for part in (*ids, *neighbors) if num_nodes is None else ():
            if part.numel() and bounds(part)[0] < 0:
                raise ValueError(f"ids must be 0 or more, but there is {bounds(part)[0]}")
        result = compact_parts(
            concat_ids(ids),
            concat_ids(neighbors),
            as_counts(accumulate(map(torch.Tensor.numel, ids), initial=0)),
            as_counts(accumulate(map(torch.Tensor.numel, neighbors), initial=0)),
            as_counts(own.values() or [0]),
            sizes[-1] or None,
        )
        starts = result.row_starts.tolist()
        parts = [result.rows[low:high] for low, high in pairwise(starts)]
        # Back to ids within the type.
        rows.update(
            (node_type, shift(part, -size)) for node_type, part, size in zip(node_types, parts, sizes, strict=False)
        )
        local.update(zip(own, torch.split(result.local, [part.numel() for part in neighbors]), strict=False))
    # An edge type without edges keeps its empty indices.
    return rows, {name: CSCFormatBase.unchecked(csc.indptr, local.get(name, csc.indices)) for name, csc in cscs.items()}


def as_counts(numbers: Iterable[int]) -> torch.Tensor:
    # Three times as fast as `torch.tensor`.
    return torch.from_numpy(np.array(list(numbers), np.int64))


def shift(ids: torch.Tensor, distance: int) -> torch.Tensor:
    # No copy if nothing is added.
    return ids + distance if distance else ids


def concat_ids(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    # No copy of a single part.
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


@overload
def compact_csc_format(
    csc_formats: CSCFormatBase, dst_nodes: torch.Tensor, dst_timestamps: None = None
) -> tuple[torch.Tensor, CSCFormatBase]: ...


@overload
def compact_csc_format(
    csc_formats: CSCFormatBase, dst_nodes: torch.Tensor, dst_timestamps: torch.Tensor
) -> tuple[torch.Tensor, CSCFormatBase, torch.Tensor]: ...


@overload
def compact_csc_format(
    csc_formats: ByEdgeType, dst_nodes: Mapping[str, torch.Tensor], dst_timestamps: None = None
) -> tuple[dict[str, torch.Tensor], dict[str, CSCFormatBase]]: ...


@overload
def compact_csc_format(
    csc_formats: ByEdgeType, dst_nodes: Mapping[str, torch.Tensor], dst_timestamps: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, CSCFormatBase], dict[str, torch.Tensor]]: ...


@checked
def compact_csc_format(
    csc_formats: CSCFormatBase | ByEdgeType,
    dst_nodes: torch.Tensor | Mapping[str, torch.Tensor],
    dst_timestamps: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
) -> Any:
    """Relabel sampled columns without deduplication: the seeds, then the source of every edge.

    Args:
        csc_formats: Columns with the ids of the graph; by edge type if the graph has types.
        dst_nodes: Ids of the columns; by node type if the graph has types. Missing types have no columns.
        dst_timestamps: The time of each column, in the same shape.

    Returns:
        The row ids, and the columns with positions in the row ids, of the same dtype. With timestamps, also the time of
        each row: those of the seeds, then for each edge that of its destination. Each by type if the graph has types.

    Raises:
        TypeError: Only one of the arguments is by type, or the ids have different dtypes.
        ValueError: The numbers of columns, seeds and timestamps differ.

    Example:
        >>> csc = CSCFormatBase(torch.tensor([0, 2, 3]), torch.tensor([8, 5, 8]))
        >>> rows, compacted = compact_csc_format(csc, torch.tensor([5, 6]))
        >>> rows, compacted.indices
        (tensor([5, 6, 8, 5, 8]), tensor([2, 3, 4]))
    """
    cscs, seeds = columns_by_type(csc_formats, dst_nodes)
    times = None if dst_timestamps is None else times_by_type(dst_timestamps, seeds)
    counts, compacted = {node_type: len(ids) for node_type, ids in seeds.items()}, {}
    for edge_type, csc in cscs.items():
        source, ids = ends_of(edge_type)[0], csc.indices
        known, counts[source] = counts[source], counts[source] + len(ids)
        positions = torch.arange(known, counts[source], dtype=ids.dtype, device=ids.device)
        compacted[edge_type] = CSCFormatBase(csc.indptr, positions)
    result = [append_edges(seeds, {name: csc.indices for name, csc in cscs.items()}), compacted]
    if times is not None:
        result.append(append_edges(times, per_edge(cscs, times)))
    return tuple(map(from_type_dict, result))


def per_edge(cscs: Mapping[EdgeType, CSCFormatBase], values: Mapping[NodeType, Any]) -> dict[EdgeType, torch.Tensor]:
    """Return the value of the column of each edge."""
    return {
        name: expand_indptr(csc.indptr, node_ids=values[ends_of(name)[1]], output_size=len(csc.indices))
        for name, csc in cscs.items()
    }


def append_edges(
    values: Mapping[NodeType, torch.Tensor], of_edges: Mapping[EdgeType, torch.Tensor]
) -> dict[NodeType, torch.Tensor]:
    """Return the values of columns, followed by those of the edges whose source has their node type."""
    parts = {node_type: [own] for node_type, own in values.items()}
    for edge_type, own in of_edges.items():
        parts[ends_of(edge_type)[0]].append(own)
    return {node_type: torch.cat(own) for node_type, own in parts.items()}


def compact_hop(
    hop: SampledSubgraph, *, deduplicate: bool, num_nodes: int | Mapping[str, int] | None = None
) -> SampledSubgraph:
    """Relabel a hop, with one row per node if `deduplicate`, else one per seed and per edge.

    With `num_nodes`, in the form of `SamplingGraph.num_nodes`, deduplication uses a dense map instead of a hash table,
    and the rows have all node types.
    """
    cscs: Any = hop.sampled_csc
    seeds: Any = hop.original_column_node_ids
    if seeds is None:
        raise ValueError("the hop has no original_column_node_ids; the graph's sampling methods set them")
    if not deduplicate:
        rows, csc = compact_csc_format(cscs, seeds)
        return SampledSubgraph(csc, seeds, rows, hop.original_edge_ids)
    parts, complete = columns_by_type(cscs, seeds)
    sizes = None if num_nodes is None else to_type_dict(num_nodes)
    if sizes is not None:
        complete = with_all_types(complete, sizes)
    rows, compacted = merge_sources(parts, complete, sizes)
    # Rows merged from valid ids are valid.
    if sizes is not None and all(are_below(csc.indices, sizes[ends_of(name)[0]]) for name, csc in parts.items()):
        mark_sampled(compacted, rows, sizes)
    return SampledSubgraph(from_type_dict(compacted), seeds, from_type_dict(rows), hop.original_edge_ids)


def columns_by_type(
    csc_formats: CSCFormatBase | ByEdgeType, seeds: torch.Tensor | Mapping[str, torch.Tensor]
) -> tuple[dict[EdgeType, CSCFormatBase], dict[NodeType, torch.Tensor]]:
    """Return columns and seeds by type, with every node type; raise an error if they don't match."""
    if isinstance(csc_formats, CSCFormatBase):
        if not isinstance(seeds, torch.Tensor):
            raise TypeError(
                "Edge type not supported in homogeneous graph: the columns have no types, but the seeds are a "
                f"{type(seeds).__name__}; pass a tensor"
            )
    elif not isinstance(seeds, Mapping):
        raise TypeError(f"the columns are by edge type, but the seeds are {kind_of(seeds)}; pass a dict")
    cscs, complete = to_type_dict(csc_formats), to_type_dict(seeds)
    some = next(iter([*complete.values(), *(csc.indices for csc in cscs.values())]), torch.empty(0, device="cpu"))
    # Node types that only occur in edge types have no seeds.
    for edge_type in cscs:
        for node_type in ends_of(edge_type):
            complete.setdefault(node_type, some[:0])
    if len({ids.dtype for ids in (*complete.values(), *(csc.indices for csc in cscs.values()))}) > 1:
        raise TypeError("ids of seeds and of columns must have the same dtype; convert with .to(...)")
    for edge_type, csc in cscs.items():
        count = complete[ends_of(edge_type)[1]].numel()
        if csc.indptr.numel() != count + 1:
            raise ValueError(
                f"The seed nodes should correspond to indptr: there are {count} seeds, but {csc.indptr.numel() - 1} "
                f"columns{'' if edge_type is None else f' of {edge_type!r}'}"
            )
    return cscs, complete


def times_by_type(
    timestamps: torch.Tensor | Mapping[str, torch.Tensor], seeds: Mapping[NodeType, torch.Tensor]
) -> dict[NodeType, torch.Tensor]:
    """Return the times of the seeds by type, with every node type; raise an error if their numbers differ."""
    complete = with_all_types(to_type_dict(timestamps), seeds)
    for node_type, ids in seeds.items():
        if len(complete[node_type]) != len(ids):
            raise ValueError(
                f"dst_timestamps must have {len(ids)} values, one per seed"
                f"{'' if node_type is None else f' of type {node_type!r}'}, but has {len(complete[node_type])}"
            )
    return complete
