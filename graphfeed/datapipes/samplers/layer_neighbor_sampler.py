"""Sample neighbours of the seeds, hop by hop, such that the nodes of a hop choose the same ones."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import Any

from graphfeed.datapipes.samplers.fanout_sampler import FOR_GPUS, FanoutSampler
from graphfeed.ops import Key, minibatch_key
from graphfeed.ops.arguments import check_count
from graphfeed.storage.graph import SamplingRequest


class LayerNeighborSampler(FanoutSampler, name="sample_layer_neighbor", ignored=FOR_GPUS, seeded=False):
    """Samples as many edges as `NeighborSampler`, from fewer nodes, by layer-neighbour sampling (sequential LABOR-0).

    Each node t has a uniform variate r(t) in each hop, which all columns share. A column takes the `fanout` neighbours
    with the smallest r(t) or, with weights, the smallest ratio of r(t) to the weight. Every subset of a column's
    neighbours is as likely as any other of its size, so estimates for a column are as good as with `NeighborSampler`;
    but columns with common neighbours choose the same ones, so fewer nodes need features. With replacement, the choices
    of one column are independent and in proportion to the weights, while columns still share their variates.

    See "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339), appendix
    A.3; for `batch_dependency`, "Cooperative Minibatching in Graph Neural Networks" (arXiv 2310.12403).

    Without weights, replacement and types, the first mini-batch builds an index of the graph's largest columns
    (`FusedCSCSamplingGraph.high_degree_index`), so that they are not read in full each time.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of neighbours to sample per node and hop, the outermost hop first; -1 samples all. A hop has one
            number for all edge types together, or a list, a tensor (in the order of `graph.edge_types`) or a dict with
            one per edge type. Instead of a list of hops, a dict by edge type may have lists with one number per hop.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        deduplicate: Whether a node gets one row, however many edges lead to it. Otherwise, each edge has a separate
            row: columns still choose the same nodes, but no rows are saved.
        layer_dependency: Whether all hops share their variates. Outer hops then choose what inner hops chose, which
            saves more rows.
        batch_dependency: Number k, 1 or more, of mini-batches of an epoch for which a variate lasts. From one
            mini-batch to the next, one node in k gets a new variate, so two that are d apart share all but d in k of
            their variates. Each is still uniform, and a function of the random seed, the epoch and the mini-batch's
            index.
        overlap_fetch: Whether the loader, after a copy to a GPU, samples ahead of the stages that follow, on a separate
            stream.
        cooperative: Whether the ranks sample joint mini-batches, as for `NeighborSampler`.

    Raises:
        ValueError: `batch_dependency` is below 1; otherwise as for `NeighborSampler`.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3, 1, 2, 3], [0, 0, 0, 4, 4, 4]), num_nodes=5)
        >>> pipe = ItemSampler(ItemSet([0, 4], names="seeds"), batch_size=2)
        >>> len(next(iter(pipe.sample_layer_neighbor(graph, fanouts=[1]))).input_nodes)
        3
    """

    deduplicate: bool = True
    layer_dependency: bool = False
    batch_dependency: int = 1
    overlap_fetch: bool = False
    _: KW_ONLY
    cooperative: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_dependency", self.batch_dependency, 1)

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph."""
        return replace(
            super().make_request(),
            strategy="labor",
            deduplicate=self.deduplicate,
        )

    def hop_keys(self) -> tuple[Sequence[Any], float]:
        """Return the keys of this and of the next period for each hop, and the share of nodes that use the latter."""
        key = minibatch_key()
        # Within a period, a growing share of the nodes changes from its key to the key of the next period.
        period, step = divmod(key.index, self.batch_dependency)
        now, then = (Key(key.seed, key.epoch, index) for index in (period, period + 1))
        numbers = [0 if self.layer_dependency else hop for hop in range(len(self.request.fanouts))]
        pairs = [(now.at(self.number, number), then.at(self.number, number)) for number in numbers]
        return pairs, step / self.batch_dependency
