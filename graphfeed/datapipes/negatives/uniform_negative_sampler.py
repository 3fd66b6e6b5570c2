"""Sample negatives with a random destination."""

from zlib import crc32

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.negatives.negative_sampler import NegativeSampler, Sampled, with_negatives
from graphfeed.datapipes.samplers.subgraph_sampler import check_is_graph
from graphfeed.ops import draw_key
from graphfeed.storage import SamplingGraph


class UniformNegativeSampler(NegativeSampler, name="sample_uniform_negative", seeded=False):
    """Adds copies of each edge seed with a destination drawn uniformly from the nodes of its type.

    A drawn pair may happen to be an edge of the graph; this is not checked. For N edges and ratio k, the seeds are
    these N, then k negatives of the first, k of the second, and so on. The labels are those of the items, or N ones in
    float32, then zeros. The indexes have the edge that each row belongs to. Each edge type is handled separately, with
    indexes from 0. The draws depend on the mini-batch's key, the edge type and the position in the mini-batch.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph whose nodes are drawn.
        negative_ratio: Number of negatives per edge.

    Raises:
        ValueError: `negative_ratio` is not an integer of 1 or more; when it runs: seeds that are not pairs, an id
            outside of the graph, or a mini-batch that is already sampled.
        KeyError: When it runs: seeds of an edge type whose node types the graph doesn't have.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet(torch.tensor([[1, 0], [3, 1]]), names="seeds"), batch_size=2)
        >>> next(iter(pipe.sample_uniform_negative(graph, negative_ratio=2))).seeds[:, 0]
        tensor([1, 3, 1, 1, 3, 3])
    """

    def __init__(self, datapipe: Datapipe, graph: SamplingGraph, negative_ratio: int) -> None:
        # As a field, `graph` would come after the base's `negative_ratio`.
        super().__init__(datapipe, negative_ratio)
        check_is_graph(graph)
        self.graph = graph

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Sampled:
        if etype is not None and seeds.dim() == 1:
            raise ValueError(
                f"seeds of type {etype!r} are nodes, but negatives belong to edges: give pairs, shape (N, 2), of an "
                "edge type 'source:relation:destination'"
            )
        key = draw_key(0 if etype is None else 1 + crc32(etype.encode()))
        pairs = self.graph.sample_negative_edges_uniform(etype, seeds, self.negative_ratio, key=key)
        return with_negatives(pairs, len(seeds))
