"""Sample all in-edges of the seeds."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, estimate_hops
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph, with_input_nodes
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, SamplingRequest

ALL_IN_EDGES = SamplingRequest([torch.tensor([-1], device="cpu")])


class InSubgraphSampler(SubgraphSampler, name="sample_in_subgraph", draws=False, seeded=False):
    """Samples all in-edges of the seeds: one hop, like `NeighborSampler` with fan-out -1.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        prob_name: Name of an edge attribute, weights or a mask: edges with 0 or False are left out.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`; when it runs: seeds of an unknown node type.
        ValueError: When it runs: a seed outside of the graph.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_in_subgraph(graph))).input_nodes
        tensor([0, 1, 2])
    """

    graph: SamplingGraph
    prob_name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        self.graph.validate(self.request)

    @cached_property
    def request(self) -> SamplingRequest:
        """The sampling request of the stage, the same for each mini-batch."""
        return replace(ALL_IN_EDGES, probs_name=self.prob_name)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and the only subgraph. Times are ignored."""
        return with_input_nodes(self.graph.sample_hops(seeds, self.request, [0]))

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        self.graph.prepare(self.request)
        return vars(self).copy()

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return an estimate from average in-degrees."""
        return estimate_hops(before, self.graph, self.request)
