"""All edges among the nodes of a mini-batch."""

import copy
from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.samplers.subgraph_sampler import check_is_graph
from graphfeed.datapipes.transform import Transform
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import (
    CSCFormatBase,
    SampledSubgraph,
    columns_by_type,
    ends_of,
    from_type_dict,
    merge_sources,
    to_type_dict,
)


class SubgraphInducer(Transform, name="induce_subgraph", reads_graph=True, seeded=False):
    """Replaces the sampled hops by one subgraph with all edges of the graph between input nodes.

    Rows and columns of the subgraph are the input nodes. All in-edges of each input node are checked, so nodes with
    very many in-edges are expensive. A seed that occurs twice has its in-edges twice, and its out-edges once.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph whose edges are found.

    Raises:
        ValueError: When it runs: the mini-batch was not sampled.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 2], [0, 0, 1]), num_nodes=3)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1).sample_neighbor(graph, fanouts=[-1])
        >>> next(iter(pipe.induce_subgraph(graph))).edge_ids(0)
        tensor([0, 1, 2])
    """

    graph: SamplingGraph

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        nodes = minibatch.input_nodes
        if nodes is None:
            raise ValueError("the mini-batch has no input_nodes yet; put a sampler before induce_subgraph")
        result = copy.copy(minibatch)
        result.sampled_subgraphs = [induce(self.graph, nodes)]
        return result


def induce(graph: SamplingGraph, nodes: Any) -> SampledSubgraph:
    """Return the subgraph of all edges among some nodes."""
    whole = graph.in_subgraph(nodes)
    columns = whole.original_column_node_ids
    cscs, rows = columns_by_type(whole.sampled_csc, columns)
    ids = None if whole.original_edge_ids is None else to_type_dict(whole.original_edge_ids)
    # Sources among the nodes get the positions of these nodes; all others come after them.
    _, local = merge_sources(cscs, rows, to_type_dict(graph.num_nodes))
    inside = {name: csc.indices < len(rows[ends_of(name)[0]]) for name, csc in local.items()}
    kept: Any = {name: keep(csc, inside[name]) for name, csc in local.items()}
    edges: Any = {name: ids[name][mask] for name, mask in inside.items()} if ids is not None else None
    return SampledSubgraph(from_type_dict(kept), columns, columns, None if edges is None else from_type_dict(edges))


def keep(csc: CSCFormatBase, mask: torch.Tensor) -> CSCFormatBase:
    # Number of remaining edges of each column.
    counts = torch.bincount(
        expand_indptr(csc.indptr, dtype=torch.int64, output_size=len(mask))[mask], minlength=len(csc.indptr) - 1
    )
    indptr = torch.cat([csc.indptr[:1], counts.cumsum(0).to(csc.indptr.dtype)])
    return CSCFormatBase(indptr, csc.indices[mask])
