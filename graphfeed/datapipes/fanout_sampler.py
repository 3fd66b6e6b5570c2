"""What samplers with one fan-out per hop share."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, estimate_hops
from graphfeed.datapipes.subgraph_sampler import SubgraphSampler, check_graph, with_input_nodes
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_request import SamplingRequest

Fanouts: TypeAlias = Sequence[int | Sequence[int] | torch.Tensor]


def parse_fanouts(fanouts: Fanouts) -> list[torch.Tensor]:
    """Return the fan-outs of each hop as a tensor, or say what is wrong with them."""
    if isinstance(fanouts, (str, Mapping)) or not hasattr(fanouts, "__len__") or len(fanouts) == 0:
        raise ValueError(f"fanouts must hold one number per hop, as in [10, 10], but is {fanouts!r}")
    hops = []
    for place, given in enumerate(fanouts):
        if isinstance(given, (str, Mapping)):
            raise TypeError(f"fanouts[{place}] must be a number, or a tensor with one per edge type, but is {given!r}")
        fanout = torch.as_tensor(given).reshape(-1)
        if fanout.is_floating_point() or fanout.dtype == torch.bool:
            raise TypeError(f"fanouts[{place}] must be whole numbers, but is {given!r}")
        if fanout.numel() and int(fanout.min()) < -1:
            raise ValueError(f"fanouts[{place}] must be -1 (all neighbours) or more, but is {given!r}")
        hops.append(fanout.to(torch.int64))
    return hops


class FanoutSampler(SubgraphSampler):
    """A base for samplers that choose a limited number of in-edges of each node: write `sample_hops`.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`.
        TypeError: `graph` is not a graph.
        ValueError: No fan-outs, or a hop that has neither one nor one per edge type.
    """

    graph: SamplingGraph
    fanouts: Fanouts
    """One per hop, the outermost hop first: a number, or one number per edge type; -1 takes all neighbours."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    prob_name: str | None = None
    """The edge attribute that holds weights or a mask."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_graph(self.graph)
        self.graph.validate(self.make_request())

    def make_request(self) -> SamplingRequest:
        """Return the request that the stage makes to its graph; a subclass may add to it."""
        return SamplingRequest(parse_fanouts(self.fanouts), self.replace, self.prob_name)

    @cached_property
    def request(self) -> SamplingRequest:
        """The request that the stage makes to its graph with each mini-batch."""
        return self.make_request()

    def sample_hops(self, seeds: ByType) -> list[SampledSubgraph]:
        """Return one subgraph per hop around the seeds, the outermost first; a subclass writes this, or the hook."""
        raise NotImplementedError(f"{type(self).__name__} must write sample_hops")

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and one subgraph per hop, the outermost first; times are ignored."""
        return with_input_nodes(self.sample_hops(seeds))

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate from average in-degrees and the fan-outs."""
        return estimate_hops(before, self.graph, self.request)

    def __getstate__(self) -> dict[str, Any]:
        """Prepare the graph before it is shared, so that workers share what was prepared."""
        self.graph.prepare(self.request)
        return vars(self).copy()


def refuse_cooperation(*, cooperative: bool) -> None:
    """Raise if ranks should sample for each other, which is not supported."""
    if cooperative:
        raise ValueError(
            "cooperative must be False: ranks don't sample for each other here; "
            "leave it out, each rank then samples for its own seeds"
        )
