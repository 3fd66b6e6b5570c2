"""Sample neighbours that were there before the seeds' times so that the nodes of a layer choose the same ones."""

from graphfeed.datapipes.temporal_sampler import TemporalSampler
from graphfeed.storage.graph.sampling_request import Strategy


class TemporalLayerNeighborSampler(TemporalSampler, name="temporal_sample_layer_neighbor"):
    """Samples in time as `TemporalNeighborSampler` does, but by variates of the neighbours: LABOR-0.

    Each node has a variate in each layer, shared by all columns whatever their times; a column takes the eligible
    neighbours of smallest variates (see `LayerNeighborSampler`). So columns choose the same neighbours where they may.
    Rows are not merged all the same, for a node at two times is two; what is saved are reads of features, where a cache
    holds them. The price is a look at all eligible edges of each row: where hubs have thousands, that takes many times
    as long as `TemporalNeighborSampler`.

    Raises:
        KeyError: An attribute that the graph hasn't got; when it runs: seeds of an unknown node type.
        TypeError: When it runs: times that are not integers.
        ValueError: No attribute with times, or wrong fan-outs; when it runs: a mini-batch without `timestamp`.

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
