"""Sample neighbours that existed before the seeds' times, such that the nodes of a hop choose the same ones."""

from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.storage.graph import Strategy


class TemporalLayerNeighborSampler(TemporalSampler, name="temporal_sample_layer_neighbor", seeded=False):
    """Temporal sampling like that of `TemporalNeighborSampler`, but by layer-neighbour sampling (LABOR-0).

    `fanouts` has one number per hop, the outermost hop first. Each node has a variate in each hop, which all columns
    share, whatever their times. A column samples the eligible neighbours with the smallest variates (see
    `LayerNeighborSampler`), so columns choose the same neighbours where they can. Nodes are still not deduplicated;
    only reads of features are saved, if there is a cache. In return, all eligible edges of each row are read: if nodes
    have thousands, this takes many times as long as `TemporalNeighborSampler`.

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
