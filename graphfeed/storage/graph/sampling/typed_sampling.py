"""Sampling all hops in the arrays of a graph with types, by one call."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.rows import take_rows
from graphfeed.storage.graph.attributes import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.kernel_columns import kernel_columns
from graphfeed.storage.graph.sampling.one_hop import Draws, check_typed_seeds
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.type_names import ends_of, numbers_of


def typed_sample_hops(
    graph: GraphArrays, seeds: ByType, request: SamplingRequest, keys: Sequence[int]
) -> list[SampledSubgraph] | None:
    """Sample all hops, the outermost first; None if there is no kernel for them, or not enough memory for its map.

    Kernels for all hops merge nodes, sample all nodes found so far, and work on the CPU.
    """
    return sample_typed(graph, seeds, request, keys, ops.Drawing("uniform", request.replace))


def typed_labor_sample_hops(
    graph: GraphArrays, seeds: ByType, request: SamplingRequest, draws: Sequence[Draws]
) -> list[SampledSubgraph] | None:
    """Sample all hops by LABOR, by the draws of each hop; None as in `typed_sample_hops`."""
    pairs = [keys for keys, _ in draws]
    return sample_typed(graph, seeds, request, pairs, ops.Drawing("labor", request.replace, draws[0][1]))


def sample_typed(
    graph: GraphArrays, seeds: ByType, request: SamplingRequest, keys: Sequence[Any], drawing: ops.Drawing
) -> list[SampledSubgraph] | None:
    """Sample all hops by their keys."""
    merged = request.deduplicate and not request.only_new
    if graph.node_type_to_id is None or not merged or not graph.indices.is_cpu:
        return None
    own = check_typed_seeds(graph, seeds)
    if not all(part.is_cpu for part in own.values()):
        return None
    fanouts = [as_tensor("fanouts", fanout) for fanout in reversed(request.fanouts)]
    weights = None if request.probs_name is None else graph.cumulative_weights(request.probs_name)
    hops = ops.typed_sample_hops(hop_graph(graph, weights), list(own.values()), fanouts, keys, drawing)
    return None if hops is None else [typed_subgraph(graph, list(own), hop) for hop in reversed(hops)]


def hop_graph(graph: GraphArrays, weights: torch.Tensor | ops.GuidedSums | None = None) -> ops.HopGraph:
    """Return the arrays of a graph, and perhaps weights, as the operations on all hops take them."""
    indptr, types = kernel_columns(graph)
    dtype = graph.csc_indptr.dtype
    if graph.node_type_to_id is None:
        return ops.HopGraph(indptr, graph.indices, cumulative=weights, indptr_dtype=dtype)
    assert graph.edge_type_to_id is not None
    assert graph.node_type_offset is not None
    first_ids = graph.node_type_offset.to(torch.int64)
    numbers = numbers_of(graph.node_type_to_id, graph.edge_type_to_id)
    return ops.HopGraph(indptr, graph.indices, types, first_ids, *numbers, cumulative=weights, indptr_dtype=dtype)


def typed_subgraph(graph: GraphArrays, kinds: Sequence[str], hop: ops.TypedHop) -> SampledSubgraph:
    """Return a hop as a subgraph with every edge type of the graph.

    Args:
        graph: The graph.
        kinds: The names of its node types by number.
        hop: What was sampled.
    """
    assert graph.edge_type_to_id is not None
    edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    ids = (hop.positions if edge_ids is None else take_rows(edge_ids, hop.positions)).numpy()
    columns, rows = dict(zip(kinds, hop.columns, strict=True)), dict(zip(kinds, hop.rows, strict=True))
    cscs, original = {}, {}
    empty = empty_columns(graph, columns)
    none = torch.from_numpy(ids[:0])
    for name, number in graph.edge_type_to_id.items():
        found = hop.edges.get(number)
        if found is None:
            indptr, indices = empty[ends_of(name)[1]]
            cscs[name], original[name] = CSCFormatBase.unchecked(indptr, indices), none
        else:
            # Slices of NumPy arrays, not of tensors: a tensor made of one has a storage of just its size.
            cscs[name] = CSCFormatBase.unchecked(found.indptr, found.indices)
            original[name] = torch.from_numpy(ids[found.own])
    return SampledSubgraph(cscs, columns, rows, original)


def empty_columns(
    graph: GraphArrays, columns: Mapping[str, torch.Tensor]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return columns without edges, by their node type; the edge types that lead there share them."""
    zeros = torch.zeros(1 + max(map(len, columns.values())), dtype=graph.csc_indptr.dtype).numpy()
    none = torch.empty(0, dtype=graph.indices.dtype)
    return {kind: (torch.from_numpy(zeros[: len(ids) + 1]), none) for kind, ids in columns.items()}
