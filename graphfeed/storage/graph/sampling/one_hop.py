"""One hop of sampling from graph arrays: checking seeds, picking edges, reading them and grouping them by type."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_ids, brief, check_ids, check_ids_of_each, check_vector, kind_of, mark_below
from graphfeed.ops.rows import gather_unchecked
from graphfeed.ops.sampling import bound_edges, group_by_type
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.graph_files import gather_edges, is_by_page, kernel_columns
from graphfeed.storage.graph.sampling.prepared import prepare_picks
from graphfeed.storage.graph.sampling.temporal_sampling import edge_times_of, group_times, stack_seed_times
from graphfeed.storage.graph.sampling_request import Hop, Seeds
from graphfeed.storage.graph.type_names import ends_of, to_type_dict, type_numbers


def pick_and_group(graph: GraphArrays, seeds: Seeds, hop: Hop) -> tuple[SampledSubgraph, ByType | None]:
    """Sample one hop on a GPU, with the ids of the graph; also return the times of its edges for the next hop."""
    query = hop.request.temporal
    columns, ids = open_seeds(graph, seeds.ids)
    moments = None if query is None else stack_seed_times(graph, seeds, hop.request)
    picks = pick_hop(graph, ids, hop, moments, stack_trees(hop, columns))
    types = kernel_columns(graph)[1]
    found, picks = group_hop(graph, columns, picks, types, partial(read_edges, graph))
    if query is None or query.hop_time != "edge":
        return found, None
    own = edge_times_of(graph, query)
    # In the order of picks; `group_times` changes it to the order of the hop.
    types = None if types is None else gather_unchecked(types, picks.positions)
    return found, group_times(graph, found, gather_edges(graph, own, picks.positions), types)


def in_hop_order(graph: GraphArrays, ids: torch.Tensor, picks: ops.Picks) -> ops.Picks:
    """Sort the edges within each column by position if the graph has types, which is their order in its hops."""
    offsets, positions = picks
    if graph.type_per_edge is None or positions.numel() == 0:
        return picks
    # One sort of integers: after the shift, the columns occupy ascending, disjoint ranges.
    first = gather_unchecked(graph.csc_indptr, ids).long()
    longest = int((gather_unchecked(graph.csc_indptr, ids + 1).long() - first).max())
    shift = torch.arange(ids.numel(), device="cpu") * longest - first
    shifts = shift.repeat_interleave(offsets.diff(), output_size=positions.numel())
    return picks._replace(positions=torch.from_numpy(np.sort((positions + shifts).numpy())) - shifts)


def group_edges(
    graph: GraphArrays, seeds: ByType, offsets: torch.Tensor, edges: Mapping[str, torch.Tensor]
) -> tuple[SampledSubgraph, ByType | None]:
    """Return edges that were read column by column as one hop with the ids of the graph, and the times of edges.

    `edges` has their sources and edge ids; with types, their types; and their times if the next hop needs them.
    """
    if isinstance(seeds, dict):
        picks = ops.Picks(offsets, torch.arange(len(edges["sources"]), device="cpu"))
        hop, _ = group_hop(graph, seeds, picks, edges["types"], partial(take_edges, edges))
    else:
        csc = CSCFormatBase.unchecked(offsets.to(graph.csc_indptr.dtype), edges["sources"])
        hop = SampledSubgraph(csc, seeds, None, edges["edge_ids"])
    return hop, group_times(graph, hop, edges["times"], edges.get("types")) if "times" in edges else None


def take_edges(edges: Mapping[str, torch.Tensor], places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and the ids of edges."""
    return gather_unchecked(edges["sources"], places), gather_unchecked(edges["edge_ids"], places)


def read_edges(graph: GraphArrays, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and the ids of edges. Without original ids, the id of an edge is its position."""
    edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    ids = positions if edge_ids is None else gather_edges(graph, edge_ids, positions)
    return gather_edges(graph, graph.indices, positions), ids


def stack_trees(hop: Hop, node_types: Any) -> torch.Tensor | None:
    """Return the tree of each node in the order of a value by node type; None without trees."""
    trees = None if hop.trees is None else to_type_dict(hop.trees)
    return None if trees is None else torch.cat([trees[node_type] for node_type in to_type_dict(node_types)])


def pick_hop(
    graph: GraphArrays,
    ids: torch.Tensor,
    hop: Hop,
    moments: ops.SeedTimes | None = None,
    trees: torch.Tensor | None = None,
) -> ops.Picks:
    """Pick the edges of one hop in the given columns of the graph; `moments` has their times and time windows."""
    request, (keys, share), fanouts = hop.request, hop.draws, hop.fanout
    typed = graph.node_type_to_id is not None
    # On a GPU, an upper bound of the number of edges avoids a synchronization. With types, they are counted once they
    # are grouped.
    most = None if ids.is_cpu or not typed else bound_edges([ids.numel()] * fanouts.numel(), fanouts.tolist())
    drawing = ops.Drawing(request.strategy, request.replace, share)
    asked = ops.OneHop(ids, fanouts, keys, drawing, moments, is_by_page(graph), trees=trees, most=most)
    windowed = moments is not None and moments.windows is not None
    # With types, seeds were checked before they were converted to the graph's ids.
    return ops.sample_neighbors(prepare_picks(graph, request, windowed=windowed), asked, checked=typed)


def group_hop(
    graph: GraphArrays,
    seeds: ByType,
    picks: ops.Picks,
    types: torch.Tensor | None,
    read: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> tuple[SampledSubgraph, ops.Picks]:
    """Return the picked edges as one hop with the ids of the graph, and the picks without a GPU's surplus entries.

    `types`, and the sources and ids of edges that `read` returns, are those at the positions of the picks.
    """
    if isinstance(seeds, dict):
        assert types is not None
        return group_hop_by_type(graph, seeds, picks, types, read)
    sources, edge_ids = read(picks.positions)
    if not sources.is_cpu:  # so that the next hop checks them without a synchronization
        mark_below(sources, graph.total_num_nodes)
    csc = CSCFormatBase.unchecked(picks.offsets.to(graph.csc_indptr.dtype), sources)
    return SampledSubgraph(csc, seeds, None, edge_ids), picks


def group_hop_by_type(
    graph: GraphArrays,
    seeds: dict[str, torch.Tensor],
    picks: ops.Picks,
    types: torch.Tensor,
    read: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> tuple[SampledSubgraph, ops.Picks]:
    assert graph.node_type_to_id is not None
    assert graph.edge_type_to_id is not None
    offsets, num_nodes = dict(zip(seeds, graph.first_ids(), strict=False)), to_type_dict(graph.num_nodes)
    starts = torch.tensor([0, *(len(part) for part in seeds.values())], device="cpu").cumsum(0)
    ends = type_numbers(graph.node_type_to_id, graph.edge_type_to_id).ends
    typed = group_by_type(picks, types, starts, ends[:, 1], graph.csc_indptr.dtype)
    # On a GPU, the arrays of picks may be too long.
    picks = picks._replace(positions=picks.positions[: len(typed.positions)])
    sources, edge_ids = read(typed.positions)
    rows, bounds = typed.bounds.tolist(), typed.starts.tolist()
    cscs, original = {}, {}
    for edge_type, number in graph.edge_type_to_id.items():
        own = slice(bounds[number], bounds[number + 1])
        indptr, ids = typed.indptr[rows[number] : rows[number + 1]], sources[own]
        # From ids of the graph to ids of the type.
        first_id = offsets[ends_of(edge_type)[0]] if len(ids) else 0
        cscs[edge_type] = CSCFormatBase.unchecked(indptr, ids - first_id if first_id else ids)
        if not ids.is_cpu:
            mark_below(cscs[edge_type].indices, num_nodes[ends_of(edge_type)[0]])
        original[edge_type] = edge_ids[own]
    return SampledSubgraph(cscs, seeds, None, original), picks


def as_seeds(graph: GraphArrays, seeds: ByType, name: str = "seeds") -> torch.Tensor:
    """Return the seeds of one type in the dtype of the graph's ids; raise an error if they are invalid."""
    if isinstance(seeds, dict):
        raise TypeError(f"{name} is a dict by type, but the graph has one type; give a tensor of node ids")
    ids, dtype = as_ids(name, seeds), graph.indices.dtype
    if ids.dtype == dtype and ids.dim() == 1:
        return ids
    check_vector(name, ids)
    # Before the conversion, in which an invalid id could become valid.
    check_ids(name, ids, graph.total_num_nodes)
    return ids.to(dtype)


def open_seeds(graph: GraphArrays, seeds: ByType) -> tuple[ByType, torch.Tensor]:
    """Return the seeds with all node types, and as ids of columns; raise an error if they are invalid."""
    if graph.node_type_to_id is None:
        ids = as_seeds(graph, seeds)
        return ids, ids
    complete = check_typed_seeds(graph, seeds)
    return complete, torch.cat([own + first for own, first in zip(complete.values(), graph.first_ids(), strict=False)])


def check_typed_seeds(graph: GraphArrays, seeds: ByType) -> dict[str, torch.Tensor]:
    """Return the seeds by type, with all node types of the graph; raise an error if they are invalid."""
    complete = complete_seeds(graph, seeds)
    check_ids_of_each(complete, to_type_dict(graph.num_nodes), "seeds of type")
    return complete


def complete_seeds(graph: GraphArrays, seeds: ByType) -> dict[str, torch.Tensor]:
    """Return the seeds by type, with all node types of the graph; the ranges of ids are not checked."""
    assert graph.node_type_to_id is not None
    if not isinstance(seeds, dict):
        raise TypeError(
            f"seeds must be a dict by node type, as the graph has types {list(graph.node_type_to_id)}, "
            f"but is {kind_of(seeds)}; use a HeteroItemSet for the items"
        )
    if not seeds.keys() <= graph.node_type_to_id.keys():
        unknown = min(seeds.keys() - graph.node_type_to_id.keys())
        raise KeyError(f"seeds have node type {brief(unknown)}, but the graph has {list(graph.node_type_to_id)}")
    given = {node_type: as_seeds(graph, part, f"seeds of type {node_type!r}") for node_type, part in seeds.items()}
    # Types without seeds get empty tensors on the same device as the others.
    device = next((part.device for part in given.values()), graph.indices.device)
    empty = torch.empty(0, dtype=graph.indices.dtype, device=device)
    in_order = sorted(graph.node_type_to_id, key=graph.node_type_to_id.__getitem__)
    return {node_type: given.get(node_type, empty) for node_type in in_order}
