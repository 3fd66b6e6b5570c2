"""One hop of sampling in a graph's arrays: check the seeds, pick edges, read them, split them by type."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_ids, as_tensor, brief, check_ids, check_ids_of_each, check_vector, trust
from graphfeed.ops.sampling import bound_edges, group_by_type
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.mapped_arrays import is_by_page, kernel_columns, take_edges
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.type_names import ends_of, to_type_dict


class EdgeArrays(NamedTuple):
    """The edge arrays of a graph that one hop reads."""

    indices: torch.Tensor
    types: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    """Fixed-point running sums."""
    edge_ids: torch.Tensor | None = None
    """None: an edge's id is its position."""

    @classmethod
    def of(cls, graph: GraphArrays, probs_name: str | None = None) -> "EdgeArrays":
        """Return the arrays of a graph."""
        weights = None if probs_name is None else graph.cumulative_weights(probs_name)
        return cls(graph.indices, kernel_columns(graph)[1], weights, graph.edge_attributes.get(ORIGINAL_EDGE_ID))


Pick: TypeAlias = Callable[[torch.Tensor, EdgeArrays, int], ops.Picks]
"""Picks edges around some ids; gets the arrays to read, and the number of edge types."""
Draws: TypeAlias = tuple[tuple[int, ...] | torch.Tensor, int]
"""The two keys of a hop, or one per seed (`OneHop.keys`), and the share of the second; only LABOR uses more than the
first key."""
ReadFrom: TypeAlias = Callable[[torch.Tensor], EdgeArrays]
"""Says from which arrays a hop around some ids is read."""


def pick_neighbors(graph: GraphArrays, fanouts: torch.Tensor, request: SamplingRequest, draws: Draws) -> Pick:
    """Return a function that picks the edges of one hop as a request says."""
    (keys, share), fanouts = draws, as_tensor("fanouts", fanouts)
    # With types, seeds were checked when they were brought into the graph's ids.
    checked = graph.node_type_to_id is not None
    starts, _ = kernel_columns(graph)

    def pick(ids: torch.Tensor, edges: EdgeArrays, num_types: int) -> ops.Picks:
        columns = ops.StaticGraph(starts, edges.indices, edges.weights, edges.types, num_types)
        drawing = ops.Drawing(request.strategy, request.replace, share)
        # A GPU is told how many edges there can be, so that nobody waits for it to count.
        most = most_edges(ids, fanouts) if checked else None
        hop = ops.OneHop(ids, fanouts, keys, drawing, by_page=is_by_page(graph), most=most)
        return ops.sample_neighbors(columns, hop, checked=checked)

    return pick


def most_edges(ids: torch.Tensor, fanouts: torch.Tensor) -> int | None:
    # A GPU counts the edges of a hop by type once they are grouped.
    return None if ids.is_cpu else bound_edges([ids.numel()] * fanouts.numel(), fanouts.tolist())


def sample_one_hop(
    graph: GraphArrays, seeds: ByType, pick: Pick, read_from: ReadFrom
) -> tuple[SampledSubgraph, ops.Picks]:
    """Return one hop with the ids of the graph, and the picks it is made of, in the order of its columns."""
    if graph.node_type_to_id is not None:
        return sample_one_hop_by_type(graph, check_typed_seeds(graph, seeds), pick, read_from)
    ids = check_seeds(graph, seeds)
    edges = read_from(ids)
    picks = pick(ids, edges, 1)
    sources, edge_ids = read(graph, edges, picks.positions)
    if not sources.is_cpu:  # so that no GPU is waited for to check them at the next hop
        trust(("ids", graph.total_num_nodes), (sources,))
    csc = CSCFormatBase.unchecked(picks.offsets.to(graph.csc_indptr.dtype), sources)
    return SampledSubgraph(csc, ids, None, edge_ids), picks


def sample_one_hop_by_type(
    graph: GraphArrays, seeds: dict[str, torch.Tensor], pick: Pick, read_from: ReadFrom
) -> tuple[SampledSubgraph, ops.Picks]:
    """Return one hop of a graph with types, and the picks it is made of."""
    assert graph.node_type_to_id is not None
    assert graph.edge_type_to_id is not None
    offsets, num_nodes = dict(zip(seeds, graph.first_ids(), strict=False)), to_type_dict(graph.num_nodes)
    ids = stack_seeds(graph, seeds)
    starts = torch.tensor([0, *(len(part) for part in seeds.values())]).cumsum(0)
    edge_types = sorted(graph.edge_type_to_id, key=graph.edge_type_to_id.__getitem__)
    ends = torch.tensor([graph.node_type_to_id[ends_of(edge_type)[1]] for edge_type in edge_types], dtype=torch.int64)
    edges = read_from(ids)
    assert edges.types is not None
    picks = pick(ids, edges, len(edge_types))
    typed = group_by_type(picks, edges.types, starts, ends, graph.csc_indptr.dtype)
    # On a GPU, picks have room for more than there are.
    picks = picks._replace(positions=picks.positions[: len(typed.positions)])
    sources, edge_ids = read(graph, edges, typed.positions)
    rows, bounds = typed.bounds.tolist(), typed.starts.tolist()
    cscs, original = {}, {}
    for edge_type, number in graph.edge_type_to_id.items():
        own = slice(bounds[number], bounds[number + 1])
        indptr, ids = typed.indptr[rows[number] : rows[number + 1]], sources[own]
        # Ids within the type, from ids of the graph.
        first_id = offsets[ends_of(edge_type)[0]] if len(ids) else 0
        cscs[edge_type] = CSCFormatBase.unchecked(indptr, ids - first_id if first_id else ids)
        if not ids.is_cpu:
            trust(("ids", num_nodes[ends_of(edge_type)[0]]), (cscs[edge_type].indices,))
        original[edge_type] = edge_ids[own]
    return SampledSubgraph(cscs, seeds, None, original), picks


def read(graph: GraphArrays, edges: EdgeArrays, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Through the graph, since its arrays may lie in files.
    ids = positions if edges.edge_ids is None else take_edges(graph, edges.edge_ids, positions)
    return take_edges(graph, edges.indices, positions), ids


def check_seeds(graph: GraphArrays, seeds: ByType, name: str = "seeds") -> torch.Tensor:
    """Return the seeds of one type in the dtype of the graph's ids, or raise an error if they are not ids of it."""
    if isinstance(seeds, dict):
        raise TypeError(f"{name} is a dict by type, but the graph has one type; give a tensor of node ids")
    ids, dtype = as_ids(name, seeds), graph.indices.dtype
    check_vector(name, ids)
    if ids.dtype == dtype:
        return ids
    # Before the conversion, in which a wrong id could become a right one.
    check_ids(name, ids, graph.total_num_nodes)
    return ids.to(dtype)


def stack_seeds(graph: GraphArrays, seeds: dict[str, torch.Tensor]) -> torch.Tensor:
    # Type after type.
    return torch.cat([part + first for part, first in zip(seeds.values(), graph.first_ids(), strict=False)])


def column_ids(graph: GraphArrays, seeds: ByType) -> torch.Tensor:
    """Return seeds as ids of the graph's columns, or say why they are none."""
    if graph.node_type_to_id is None:
        return check_seeds(graph, seeds)
    return stack_seeds(graph, check_typed_seeds(graph, seeds))


def check_typed_seeds(graph: GraphArrays, seeds: ByType) -> dict[str, torch.Tensor]:
    """Return the seeds by type, every node type of the graph present, or say why they are none."""
    complete = complete_seeds(graph, seeds)
    check_ids_of_each(complete, to_type_dict(graph.num_nodes), "seeds of type")
    return complete


def complete_seeds(graph: GraphArrays, seeds: ByType) -> dict[str, torch.Tensor]:
    """Return the seeds by type, every node type present; whether they are nodes is not checked."""
    assert graph.node_type_to_id is not None
    if not isinstance(seeds, dict):
        raise TypeError(
            f"seeds must be a dict by node type, for the graph has types {list(graph.node_type_to_id)}, "
            f"but is a {type(seeds).__name__}; give the item set as HeteroItemSet"
        )
    unknown = sorted(set(seeds) - set(graph.node_type_to_id))
    if unknown:
        raise KeyError(f"seeds have node type {brief(unknown[0])}, but the graph has {list(graph.node_type_to_id)}")
    num_nodes = graph.num_nodes
    assert isinstance(num_nodes, dict)
    given = {node_type: check_seeds(graph, part, f"seeds of type {node_type!r}") for node_type, part in seeds.items()}
    # Types without seeds lie where the others do.
    device = next((part.device for part in given.values()), graph.indices.device)
    empty = torch.empty(0, dtype=graph.indices.dtype, device=device)
    return {node_type: given.get(node_type, empty) for node_type in num_nodes}
