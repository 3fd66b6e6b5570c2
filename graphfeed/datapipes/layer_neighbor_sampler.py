"""Sample neighbours of the seeds, layer by layer, so that the nodes of a layer choose the same ones."""

from graphfeed.datapipes.neighbor_sampler import NeighborSampler
from graphfeed.ops import Key
from graphfeed.storage import SampledSubgraph
from graphfeed.storage.sampled_subgraph import ByType


class LayerNeighborSampler(NeighborSampler, name="sample_layer_neighbor"):
    """Samples as many neighbours as `NeighborSampler` does, but of fewer nodes: LABOR-0, in its sequential variant.

    Each node t has a variate r(t) in each layer, uniform and shared by all columns; a column takes the `fanout`
    neighbours of smallest r(t), or, with weights, of smallest r(t) over weight. Any subset of a column's neighbours is
    as likely as any other of its size, so estimates of a column are as good as with `NeighborSampler`; but columns
    with common neighbours choose the same ones, so fewer nodes need features. With replacement the choices of one
    column are independent and in proportion to the weights, those of two columns again joint.

    See "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339), appendix
    A.3; for `batch_dependency`, "Cooperative Minibatching in Graph Neural Networks" (arXiv 2310.12403).

    Raises:
        KeyError: The graph has no edge attribute `prob_name`; when it runs: seeds of an unknown node type.
        ValueError: No fan-outs, a layer with a wrong number of them, or a `batch_dependency` below 1; when it runs: a
            seed outside of the graph.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3, 1, 2, 3], [0, 0, 0, 4, 4, 4]), num_nodes=5)
        >>> pipe = ItemSampler(ItemSet(torch.tensor([0, 4]), names="seeds"), batch_size=2)
        >>> len(next(iter(pipe.sample_layer_neighbor(graph, fanouts=[1]))).input_nodes)
        3
    """

    deduplicate: bool = True
    """Only True: that a node which many columns choose is one row is what this sampler is for."""
    layer_dependency: bool = False
    """Whether all layers share their variates: outer ones choose again what inner ones chose, for still fewer nodes."""
    batch_dependency: int = 1
    """Over how many mini-batches of an epoch a variate lasts. From each to the next a share of one in so many nodes,
    other ones each time, draw anew: two that are d apart share all but d in so many variates. Every variate is
    uniform all the same, and a function of the seed, the epoch and the mini-batch's index."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.deduplicate:
            raise ValueError("deduplicate must be True: this sampler has columns share nodes; use sample_neighbor else")
        if self.batch_dependency < 1:
            raise ValueError(f"batch_dependency must be 1 or more, but is {self.batch_dependency}")

    def sample_layers(self, nodes: ByType, key: Key) -> list[SampledSubgraph]:
        """Return all layers around the nodes, the outermost first."""
        period, step = divmod(key.index, self.batch_dependency)
        now, then = (Key(key.seed, key.epoch, index) for index in (period, period + 1))
        hops = [0 if self.layer_dependency else hop for hop in range(len(self.fanouts))]
        seeds = [(now.at(self.number, hop), then.at(self.number, hop)) for hop in hops]
        contribution = step / self.batch_dependency
        return self.graph.sample_layers_jointly(
            nodes, self.layer_fanouts, seeds, contribution, self.replace, self.prob_name
        )
