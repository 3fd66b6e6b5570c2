"""Sample neighbours of the seeds that existed before the seeds' times, hop by hop."""

from dataclasses import replace
from typing import Literal

from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.storage.graph import SamplingRequest, Strategy


class TemporalNeighborSampler(TemporalSampler, name="temporal_sample_neighbor"):
    """Samples in-neighbours that existed before a time, so that nothing of the future leaks into a mini-batch.

    The mini-batch's `timestamp` has one integer per seed, by type as the seeds are; for edge seeds, one per row, or one
    per node in the seeds' shape. An edge is eligible if its own time and its source's, if these are named, lie strictly
    between `time - pre_time_window` and `time` of the seed. Both ends are excluded, as in GraphBolt (its documentation
    says otherwise). `fanouts` has one number per hop, the outermost hop first, as for `NeighborSampler`.

    Sets `sampled_subgraphs` and `input_nodes`, and for edge seeds also `compacted_seeds`. Nodes are not deduplicated:
    the rows of a hop are its seeds, then the source of every edge, each with its seed's time (or its edge's, by
    `hop_time`). So mini-batches are larger than those of `NeighborSampler`. The draws depend on the mini-batch's key,
    the hop, the node's id and its time alone, with `disjoint` also on the number of the seed.

    Before the first mini-batch, the edges of each column are sorted by time, which takes up to 32 bytes per edge,
    unless the graph was made of an edge list that is sorted by time.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> times = torch.tensor([10, 20, 30, 5])
        >>> graph = from_coo(([1, 2, 3, 4], [0, 0, 0, 1]), num_nodes=5, edge_attributes={"time": times})
        >>> pipe = ItemSampler(ItemSet(([0], [30]), names=("seeds", "timestamp")), batch_size=1)
        >>> next(iter(pipe.temporal_sample_neighbor(graph, [-1], edge_timestamp_attr_name="time"))).input_nodes
        tensor([0, 1, 2])
    """

    strategy: Literal["uniform", "latest"] = "uniform"
    """"uniform" draws at random; "latest" takes the most recent edges, among equal times those that come last."""
    inclusive: bool = False
    """Whether both ends of the time between `time - pre_time_window` and `time` are part of it."""
    disjoint: bool = False
    """Whether nodes are merged inside the tree of each seed, and each hop samples only the nodes that the hop before
    found, as by PyG's `NeighborLoader`; otherwise, each edge has a row of its own."""

    def make_request(self) -> SamplingRequest:
        """Return the request that the stage makes to its graph."""
        request = super().make_request()
        if self.inclusive and request.temporal is not None:
            request = replace(request, temporal=replace(request.temporal, inclusive=True))
        if not self.disjoint:
            return request
        return replace(request, deduplicate=True, only_new=True, disjoint=True)

    @property
    def chosen_by(self) -> Strategy:
        """How edges are chosen among the eligible ones."""
        return self.strategy
