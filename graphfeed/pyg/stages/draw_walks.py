"""The nodes of random walks as those of a mini-batch."""

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.ops import draw_key, drawing
from graphfeed.ops.sampling import draw_places
from graphfeed.pyg.stages.draw_edge_ends import with_nodes
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
        assert isinstance(self.graph.num_nodes, int)
        with drawing(minibatch.key, self.number):
            starts = draw_places(self.count, draw_key(0), self.graph.num_nodes)
            walks = self.graph.random_walks(starts, self.num_steps, key=draw_key(1))
        return with_nodes(minibatch, walks)
