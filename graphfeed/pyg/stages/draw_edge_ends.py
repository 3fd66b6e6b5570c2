"""The ends of random edges as the nodes of a mini-batch."""

import copy

import numpy as np
import torch

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.ops import draw_key, drawing
from graphfeed.ops.arguments import NOTHING
from graphfeed.ops.sampling import draw_places
from graphfeed.storage import FusedCSCSamplingGraph


class DrawEdgeEnds(Transform):
    """Draws edges with replacement, and makes their ends the input nodes of a mini-batch, in the order of their ids.

    The seeds of the mini-batch are dropped. The graph has no types.
    """

    graph: FusedCSCSamplingGraph
    count: int
    """How many edges are drawn."""
    sums: str | None = None
    """The edge attribute with the running sums of the edges' weights; None: all edges are alike, and the nodes are
    their destinations alone."""

    needs_key = True
    reads_graph = True

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        sums = NOTHING if self.sums is None else self.graph.edge_attributes[self.sums]
        with drawing(minibatch.key, self.number):
            edges = draw_places(self.count, draw_key(0), self.graph.total_num_edges, sums).numpy()
        # The column that an edge lies in is one of its ends.
        ends = np.searchsorted(self.graph.csc_indptr.numpy(), edges, side="right") - 1
        if self.sums is not None:
            ends = np.concatenate([ends, self.graph.indices.numpy()[edges]])
        return with_nodes(minibatch, torch.from_numpy(ends).to(self.graph.indices.dtype))


def with_nodes(minibatch: MiniBatch, nodes: torch.Tensor) -> MiniBatch:
    result = copy.copy(minibatch)
    result.seeds, result.input_nodes = None, torch.from_numpy(np.unique(nodes.numpy()))
    return result
