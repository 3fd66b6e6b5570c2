"""Sample neighbours of the seeds that were there before the seeds' times, layer by layer."""

from typing import Literal

from graphfeed.datapipes.temporal_sampler import TemporalSampler
from graphfeed.storage.graph.sampling_request import Strategy


class TemporalNeighborSampler(TemporalSampler, name="temporal_sample_neighbor"):
    """Samples in-neighbours that were there before a time, so that nothing of the future leaks into a mini-batch.

    The mini-batch's `timestamp` has one integer a seed, by type as the seeds are; of edge seeds one a row, or one a
    node in the seeds' shape. An edge is eligible if its own time and its source's, where those are named, lie strictly
    between `time - pre_time_window` and `time` of the node that looks. Both ends are left out, as in GraphBolt (its
    documentation says otherwise).

    Sets `sampled_subgraphs` and `input_nodes`, for edge seeds also `compacted_seeds`. Nodes are never merged, for a
    node at two times is two: the row ids of a layer are its seeds, then the source of every edge, doubles included,
    each with its seed's time (or its edge's, by `hop_time`). So there are as many rows as edges, and mini-batches are
    larger than those of `NeighborSampler`. The draws depend on the mini-batch's key, the hop, the node's id and its
    time alone.

    Before the first mini-batch the edges of each column are brought into the order of time; what that costs,
    `timed_columns` says. A graph made of an edge list in the order of time needs nothing.

    Raises:
        KeyError: An attribute that the graph hasn't got; when it runs: seeds of an unknown node type.
        TypeError: When it runs: times that are not integers.
        ValueError: No attribute with times, wrong fan-outs, or options that don't go together; when it runs: a
            mini-batch without `timestamp`, or one that has another number of times than seeds.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> edges, times = ([1, 2, 3, 4], [0, 0, 0, 1]), torch.tensor([10, 20, 30, 5])
        >>> graph = from_coo(edges, num_nodes=5, edge_attributes={"time": times})
        >>> items = ItemSet((torch.tensor([0]), torch.tensor([30])), names=("seeds", "timestamp"))
        >>> pipe = ItemSampler(items, batch_size=1)
        >>> next(iter(pipe.temporal_sample_neighbor(graph, [-1], edge_timestamp_attr_name="time"))).input_nodes
        tensor([0, 1, 2])
    """

    strategy: Literal["uniform", "latest"] = "uniform"
    """"uniform" draws at random; "latest" takes the most recent edges (of equal ones those that come last)."""

    @property
    def chosen_by(self) -> Strategy:
        """How edges are chosen among the eligible ones."""
        return self.strategy
