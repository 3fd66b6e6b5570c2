"""Sample neighbours that existed before the seeds' times so that the nodes of a hop choose the same ones."""

from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.storage.graph import Strategy


class TemporalLayerNeighborSampler(TemporalSampler, name="temporal_sample_layer_neighbor"):
    """Samples in time as `TemporalNeighborSampler` does, but by layer-neighbour sampling (LABOR-0).

    `fanouts` has one number per hop, the outermost hop first, as for `NeighborSampler`.

    Each node has a variate in each hop, which all columns share whatever their times. A column takes the eligible
    neighbours with the smallest variates (see `LayerNeighborSampler`), so columns choose the same neighbours where they
    can. Nodes are still not deduplicated; what is saved are reads of features, if a cache holds them. The price is that
    all eligible edges of each row are read: where nodes have thousands, that takes many times as long as with
    `TemporalNeighborSampler`.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> edges, times = ([1, 2, 3, 1, 2, 3], [0, 0, 0, 4, 4, 4]), torch.tensor([1, 2, 9, 1, 2, 9])
        >>> graph = from_coo(edges, num_nodes=5, edge_attributes={"time": times})
        >>> items = ItemSet((torch.tensor([0, 4]), torch.tensor([5, 5])), names=("seeds", "timestamp"))
        >>> pipe = ItemSampler(items, batch_size=2).temporal_sample_layer_neighbor(
        ...     graph, [1], edge_timestamp_attr_name="time"
        ... )
        >>> _, _, first, second = next(iter(pipe)).input_nodes.tolist()
        >>> first == second
        True
    """

    @property
    def chosen_by(self) -> Strategy:
        """How edges are chosen among the eligible ones."""
        return "labor"
