"""Take all in-edges of the seeds."""

import torch

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, estimate_hops
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_graph, with_input_nodes
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, SamplingRequest

ALL_IN_EDGES = SamplingRequest([torch.tensor([-1], device="cpu")])


class InSubgraphSampler(SubgraphSampler, name="sample_in_subgraph"):
    """Takes all in-edges of the seeds: one hop, as `NeighborSampler` with fan-out -1.

    Raises:
        KeyError: When it runs: seeds of an unknown node type.
        ValueError: When it runs: a seed outside of the graph.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_in_subgraph(graph))).input_nodes
        tensor([0, 1, 2])
    """

    graph: SamplingGraph

    needs_key = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_graph(self.graph)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and the one subgraph; times are ignored."""
        return with_input_nodes(self.graph.sample_hops(seeds, ALL_IN_EDGES, [0]))

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate from average in-degrees."""
        return estimate_hops(before, self.graph, ALL_IN_EDGES)
