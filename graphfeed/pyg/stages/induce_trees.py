"""All edges inside the tree of each seed."""

from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import MiniBatch, Transform, check_graph
from graphfeed.ops.rows import take_rows
from graphfeed.ops.structure import InducedEdges, induce_trees
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch, as_sampled
from graphfeed.storage import FusedCSCSamplingGraph, SamplingGraph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, kernel_columns, trees_of_rows


class InduceTrees(Transform):
    """Turns disjoint sampled hops into a PyG `SamplerOutput` with all edges of the graph between nodes of one tree.

    The nodes are in the order of their trees, each seed the first of its own. It costs a look at each in-edge of each
    of them. The graph has no types.

    Raises:
        TypeError: `graph` is not a graph.
        ValueError: When it runs: a mini-batch that was not sampled.
    """

    graph: SamplingGraph

    reads_graph = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_graph(self.graph)

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        if not minibatch.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before InduceTrees")
        module = import_pyg("torch_geometric.sampler", "InduceTrees")
        result = as_sampled(minibatch)
        rows: Any = minibatch.input_nodes
        trees: Any = trees_of_rows(minibatch.sampled_subgraphs, result.trees)
        trees, order = sort_here(trees)
        nodes = rows[order].long()
        # A seed comes before the nodes that were found around it, and the sort is stable: it stays first in its tree.
        starts = torch.searchsorted(trees, torch.arange(int(trees[-1]) + 2 if len(trees) else 1))
        edges, ids = induce(self.graph, nodes, starts)
        result.output = module.SamplerOutput(nodes, edges.sources, edges.destinations, ids, trees)
        result.output.metadata = result.metadata
        result.sampled_subgraphs = None
        return result


def induce(graph: SamplingGraph, nodes: torch.Tensor, starts: torch.Tensor) -> tuple[InducedEdges, torch.Tensor | None]:
    """Return the edges inside of trees, and their ids if the graph has them."""
    if isinstance(graph, FusedCSCSamplingGraph):
        found = induce_trees(kernel_columns(graph)[0], graph.indices, nodes, nodes, starts)
        ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
        return found, found.positions if ids is None else take_rows(ids, found.positions).long()
    # Of another graph, the in-edges are asked for, whose columns are the nodes in their order.
    whole: Any = graph.in_subgraph(nodes)
    csc = whole.sampled_csc
    found = induce_trees(csc.indptr, csc.indices, torch.arange(len(nodes)), nodes, starts)
    ids = whole.original_edge_ids
    return found, None if ids is None else ids[found.positions].long()


def sort_here(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not values.is_cpu:
        return torch.sort(values, stable=True)
    # By NumPy, in this thread: torch.sort wakes a pool of threads, which takes several times as long beside others.
    positions = torch.from_numpy(np.argsort(values.numpy(), kind="stable"))
    return values[positions], positions
