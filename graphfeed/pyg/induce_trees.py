"""All edges inside the tree of each seed."""

from typing import Any

import numpy as np
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.subgraph_sampler import check_graph
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import expand_indptr
from graphfeed.pyg.sampled_minibatch import SampledMiniBatch, as_sampled
from graphfeed.pyg.to_sampler_output import import_pyg
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph.new_nodes import trees_of_rows


class InduceTrees(Transform):
    """Turns disjoint sampled hops into a PyG `SamplerOutput` with all edges of the graph between nodes of one tree.

    The nodes are in the order of their trees, each seed the first of its own. It costs a look at each in-edge of each
    of them. The graph has no types.

    Raises:
        ImportError: When it runs: PyG is not installed.
        TypeError: `graph` is not a graph.
        ValueError: When it runs: a mini-batch that was not sampled.
    """

    graph: SamplingGraph

    reads_graph = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_graph(self.graph)

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        """Return the mini-batch with the sampler's output."""
        if not minibatch.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before InduceTrees")
        module = import_pyg("torch_geometric.sampler", "InduceTrees")
        result = as_sampled(minibatch)
        rows: Any = minibatch.input_nodes
        trees: Any = trees_of_rows(minibatch.sampled_subgraphs, result.trees)
        trees, order = sort_here(trees)
        nodes = rows[order].long()
        found: Any = self.graph.in_subgraph(rows[order])
        csc = found.sampled_csc
        columns = expand_indptr(csc.indptr, dtype=torch.int64, output_size=len(csc.indices))
        # One number per node of a tree, which an edge's source must be among; it can't overflow.
        size: Any = self.graph.num_nodes
        names, places = sort_here(trees * size + nodes)
        wanted = trees[columns] * size + csc.indices
        at = torch.searchsorted(names, wanted).clamp_(max=len(names) - 1)
        inside = names[at] == wanted
        edge = None if found.original_edge_ids is None else found.original_edge_ids[inside].long()
        result.output = module.SamplerOutput(nodes, places[at[inside]], columns[inside], edge, trees)
        result.output.metadata = result.metadata
        result.sampled_subgraphs = None
        return result


def sort_here(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values sorted, and where each was; equal ones keep their order."""
    if not values.is_cpu:
        return torch.sort(values, stable=True)
    # By NumPy, in this thread: torch.sort wakes a pool of threads, which takes several times as long beside others.
    places = torch.from_numpy(np.argsort(values.numpy(), kind="stable"))
    return values[places], places
