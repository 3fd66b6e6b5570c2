"""PyG's `ShaDowKHopSampler`: a small subgraph around each root."""

from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import MiniBatch, Transform, check_is_graph
from graphfeed.ops.arguments import check_count, checked
from graphfeed.ops.rows import gather_unchecked
from graphfeed.ops.structure import InducedEdges, induce_trees
from graphfeed.pyg.data.features_of_data import features_of_data
from graphfeed.pyg.data.graph_of_data import graph_of_data
from graphfeed.pyg.data.read_input import InputNodes, read_input_nodes
from graphfeed.pyg.data.tables import check_untyped, import_pyg
from graphfeed.pyg.loaders.pyg_loader import SHARE, PyGLoader, TorchOptions
from graphfeed.pyg.stages.fill_data import ToRootedBatch
from graphfeed.pyg.stages.sampler_output import JoinedNeighborSampler, SampledMiniBatch, as_sampled, joined_hops
from graphfeed.storage import FusedCSCSamplingGraph, SamplingGraph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, kernel_columns


class InduceTrees(Transform, reads_graph=True, seeded=False):
    """Turns disjoint sampled hops into a PyG `SamplerOutput` with all edges of the graph between nodes of one tree.

    The nodes are in the order of their trees, and each seed is the first of its tree. All in-edges of all nodes are
    read. The graph must not have types.

    Raises:
        ValueError: When it runs: a mini-batch was not sampled.
    """

    graph: SamplingGraph

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        module = import_pyg("torch_geometric.sampler", "InduceTrees")
        result = as_sampled(minibatch)
        hops = joined_hops(result, "InduceTrees", disjoint=True)
        assert hops.trees is not None
        trees, order = sort_here(hops.trees[None])
        nodes = hops.rows[None][order].long()
        # A seed precedes the nodes that were sampled around it, and the sort is stable: it remains first in its tree.
        starts = torch.searchsorted(trees, torch.arange(int(trees[-1]) + 2 if len(trees) else 1, device="cpu"))
        edges, ids = induce(self.graph, nodes, starts)
        result.output = module.SamplerOutput(nodes, edges.sources, edges.destinations, ids, trees)
        result.output.metadata = result.metadata
        result.sampled_subgraphs = None
        return result


def induce(graph: SamplingGraph, nodes: torch.Tensor, starts: torch.Tensor) -> tuple[InducedEdges, torch.Tensor | None]:
    """Return the edges inside of the trees, and their ids if the graph has any."""
    if isinstance(graph, FusedCSCSamplingGraph):
        found = induce_trees(kernel_columns(graph)[0], graph.indices, nodes, nodes, starts)
        ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
        return found, found.positions if ids is None else gather_unchecked(ids, found.positions).long()
    # Other kinds of graphs return the in-edges, grouped by node in the given order.
    whole = graph.in_subgraph(nodes)
    csc = whole.sampled_csc
    found = induce_trees(csc.indptr, csc.indices, torch.arange(len(nodes), device="cpu"), nodes, starts)
    ids = whole.original_edge_ids
    return found, None if ids is None else ids[found.positions].long()


def sort_here(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not values.is_cpu:
        return torch.sort(values, stable=True)
    # NumPy sorts in this thread; torch.sort uses a thread pool, which is several times as slow next to other threads.
    positions = torch.from_numpy(np.argsort(values.numpy(), kind="stable"))
    return values[positions], positions


class ShaDowKHopSampler(PyGLoader):
    """Yields mini-batches with one subgraph per root, as `torch_geometric.loader.ShaDowKHopSampler` does.

    The nodes around a root are sampled hop by hop. Its subgraph has all edges between them, and the root as its first
    node. A mini-batch is a `Batch` of these subgraphs, with `batch`, `ptr` and `root_n_id`, and also with `n_id`,
    `e_id` and `input_id`. `y` has the labels of the roots. torch-sparse is not needed.

    Args:
        data: A `torch_geometric.data.Data`.
        depth: Number of hops.
        num_neighbors: Number of neighbours per node in each hop; -1 selects all.
        node_idx: The roots: ids or a mask; None: all nodes.
        replace: Whether an edge may be drawn more than once.
        kwargs: As for `NodeLoader`.

    Raises:
        ValueError: `data` has types, a number is out of range, or there are no roots.
    """

    how_to_share = f"give each rank its own share of node_idx, or pass {SHARE}"

    is_subgraph = True

    @checked
    def __init__(
        self, data: Any, depth: int, num_neighbors: int, node_idx: Any = None, replace: bool = False, **kwargs: Any
    ) -> None:
        check_untyped(data, type(self).__name__)
        check_count("depth", depth, 1)
        options = TorchOptions.of(kwargs, type(self).__name__)
        graph, features = graph_of_data(data).graph, features_of_data(data)
        pipe = options.source(read_input_nodes(data, InputNodes(node_idx)).items)
        pipe = JoinedNeighborSampler(pipe, graph, [num_neighbors] * depth, replace, only_new=True, disjoint=True)
        pipe = ToRootedBatch(self._fill(InduceTrees(pipe, graph), features), "y" in features.node_names[None])
        super().__init__(pipe, options, data)
        self.depth, self.num_neighbors, self.replace = depth, num_neighbors, replace
        self.node_idx = node_idx
