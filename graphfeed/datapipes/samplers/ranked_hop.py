"""Hops whose edges lead from the best nodes of each seed, with weights."""

from typing import Any

import torch

from graphfeed.ops.sampling import Ranked
from graphfeed.storage import CSCFormatBase, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import compact_hop, from_type_dict


def ranked_hop(
    graph: SamplingGraph, columns: Any, ranked: Ranked, weights: torch.Tensor, edge_type: str | None = None
) -> SampledSubgraph:
    """Return a relabelled hop with an edge to each column from its best nodes; by edge type if the graph has types."""
    seeds = columns if edge_type is None else columns[edge_type.split(":")[2]]
    csc = CSCFormatBase(ranked.indptr, ranked.nodes.to(seeds.dtype))
    hop = SampledSubgraph(from_type_dict({edge_type: csc}), columns)
    made = compact_hop(hop, deduplicate=True, num_nodes=graph.num_nodes)
    made.edge_weights = from_type_dict({edge_type: weights})
    return made
