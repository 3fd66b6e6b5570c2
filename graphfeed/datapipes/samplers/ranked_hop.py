"""Hops whose edges lead from the best nodes of each seed, with weights."""

from collections.abc import Mapping
from typing import Any

import torch

from graphfeed.ops.sampling import Ranked
from graphfeed.storage import CSCFormatBase, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import compact_hop, ends_of, from_type_dict


def ranked_hop(
    graph: SamplingGraph, columns: Any, ranked: Mapping[str | None, Ranked], weights: Mapping[str | None, torch.Tensor]
) -> SampledSubgraph:
    """Return a relabelled hop with an edge to each column from its best nodes; all are by type if the graph has types.

    Without types, the key of the only edge type is None.
    """
    cscs = {}
    for name, own in ranked.items():
        seeds = columns if name is None else columns[ends_of(name)[1]]
        cscs[name] = CSCFormatBase(own.indptr, own.nodes.to(seeds.dtype))
    hop = SampledSubgraph(from_type_dict(cscs), columns)
    made = compact_hop(hop, deduplicate=True, num_nodes=graph.num_nodes)
    made.edge_weights = from_type_dict(weights)
    return made
