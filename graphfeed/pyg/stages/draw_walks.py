"""The nodes on random walks, as those of a mini-batch."""

import copy

import numpy as np
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw_key, draw_places
from graphfeed.ops.keys import drawing
from graphfeed.storage import SamplingGraph


class DrawWalks(Transform):
    """Walks from random nodes, and makes the nodes on the way the input nodes of a mini-batch, in the order of ids.

    A step leads from the destination of an edge to its source. The seeds of the mini-batch are dropped. The graph has
    no types.
    """

    graph: SamplingGraph
    count: int
    """How many walks there are."""
    num_steps: int
    """How many steps each takes."""

    needs_key = True
    reads_graph = True

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        """Return the mini-batch with input nodes."""
        assert isinstance(self.graph.num_nodes, int)
        with drawing(minibatch.key, self.number):
            starts = draw_places(self.count, draw_key(0), self.graph.num_nodes)
            walks = self.graph.random_walks(starts, self.num_steps, key=draw_key(1))
        result = copy.copy(minibatch)
        result.seeds, result.input_nodes = None, torch.from_numpy(np.unique(walks.numpy()))
        return result
