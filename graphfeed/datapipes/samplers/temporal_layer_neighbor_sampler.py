"""Sample neighbours that existed before the seeds' times, such that the nodes of a hop choose the same ones."""

from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.storage.graph import Strategy


class TemporalLayerNeighborSampler(TemporalSampler, name="temporal_sample_layer_neighbor", seeded=False):
    """Temporal sampling like that of `TemporalNeighborSampler`, but by layer-neighbour sampling (LABOR-0).

    Each node has a variate in each hop, which all columns share, whatever their times. A column samples the eligible
    neighbours with the smallest variates (see `LayerNeighborSampler`), so columns choose the same neighbours where they
    can. Nodes are still not deduplicated; only reads of features are saved, if there is a cache. In return, all
    eligible edges of each row are read: if nodes have thousands, this takes many times as long as
    `TemporalNeighborSampler`.

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
        visible: "seed" shows each seed all that is earlier than itself. "batch" shows it only what is earlier than the
            whole mini-batch, as for models with a memory that is updated after each mini-batch. Windows still begin at
            the same times.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> times = torch.tensor([1, 2, 9, 1, 2, 9])
        >>> graph = from_coo(([1, 2, 3, 1, 2, 3], [0, 0, 0, 4, 4, 4]), num_nodes=5, edge_attributes={"time": times})
        >>> pipe = ItemSampler(ItemSet(([0, 4], [5, 5]), names=("seeds", "timestamp")), batch_size=2)
        >>> next(iter(pipe.temporal_sample_layer_neighbor(graph, [1], edge_timestamp_attr_name="time"))).input_nodes
        tensor([0, 4, 1, 1])
    """

    @property
    def chosen_by(self) -> Strategy:
        """The strategy that chooses among the eligible edges."""
        return "labor"
