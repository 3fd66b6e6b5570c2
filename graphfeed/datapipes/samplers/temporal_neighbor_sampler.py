"""Sample neighbours of the seeds that existed before the seeds' times, hop by hop."""

from dataclasses import replace
from typing import Literal

from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.storage.graph import SamplingRequest, Strategy


class TemporalNeighborSampler(TemporalSampler, name="temporal_sample_neighbor", seeded=False):
    """Samples in-neighbours that existed before a time, so that no future information leaks into a mini-batch.

    The mini-batch's `timestamp` has one integer per seed, by type if the seeds have types; for edge seeds, one per row,
    or one per node in the seeds' shape. An edge is eligible if its own time and its source's, if these are named, are
    strictly between `time - pre_time_window` and `time` of the seed. Both bounds are excluded, as in GraphBolt (its
    documentation says otherwise).

    Sets `sampled_subgraphs` and `input_nodes`, and for edge seeds also `compacted_seeds`. Nodes are not deduplicated:
    the rows of a hop are its seeds, then the source of every edge, each with its seed's time (or its edge's, depending
    on `hop_time`). So mini-batches are larger than those of `NeighborSampler`. The draws depend only on the
    mini-batch's key, the hop, the node's id and its time; with `disjoint`, also on the seed's position.

    Before the first mini-batch, the edges of each column are sorted by time, which takes up to 32 bytes per edge,
    unless the graph was built from an edge list that is sorted by time.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of neighbours to sample per node and hop, the outermost hop first; -1 samples all. A hop has one
            number for all edge types together, or a list, a tensor (in the order of `graph.edge_types`) or a dict with
            one per edge type. Instead of a list of hops, a dict by edge type may have lists with one number per hop.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        node_timestamp_attr_name: The node attribute with integer times. A neighbour exists after its time, and always
            if its type has no times.
        edge_timestamp_attr_name: The edge attribute with integer times. An edge exists after its time, and always if
            its type has no times.
        pre_time_window: Length of the window before a node's time, in the unit of the times; None: unlimited. If the
            mini-batch has `pre_time_window`, it has a window for each seed instead: give the item set a member of that
            name.
        hop_time: The time at which the next hop samples around a neighbour: that of the "seed" that led to it, or of
            the "edge".
        strategy: "uniform" draws at random; "latest" picks the most recent edges, and among equal times those that come
            last.
        inclusive: Whether the bounds `time - pre_time_window` and `time` are included.
        disjoint: Whether nodes are merged within the tree of each seed, and each hop samples only the nodes that the
            previous hop added, as in PyG's `NeighborLoader`; otherwise, each edge has a separate row.
        visible: "seed" shows each seed all that is earlier than itself. "batch" shows it only what is earlier than the
            whole mini-batch, as for models with a memory that is updated after each mini-batch. Windows still begin at
            the same times.

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
    inclusive: bool = False
    disjoint: bool = False

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph."""
        request = super().make_request()
        if self.inclusive and request.temporal is not None:
            request = replace(request, temporal=replace(request.temporal, inclusive=True))
        if not self.disjoint:
            return request
        return replace(request, deduplicate=True, only_new=True, disjoint=True)

    @property
    def chosen_by(self) -> Strategy:
        """The strategy that chooses among the eligible edges."""
        return self.strategy
