"""What samplers with a fan-out a layer share."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import torch

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, estimate_layers
from graphfeed.datapipes.subgraph_sampler import SubgraphSampler, check_graph
from graphfeed.storage import FusedCSCSamplingGraph, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph.sampled_subgraph import ByType

Fanouts: TypeAlias = Sequence[int | Sequence[int] | torch.Tensor]


def parse_fanouts(fanouts: Fanouts, graph: SamplingGraph) -> list[torch.Tensor]:
    """Return the fan-outs of each layer as a tensor, or say what is wrong with them."""
    if isinstance(fanouts, (str, Mapping)) or not hasattr(fanouts, "__len__") or len(fanouts) == 0:
        raise ValueError(f"fanouts must hold a number for each layer, as in [10, 10], but is {fanouts!r}")
    num_types = len(getattr(graph, "edge_type_to_id", None) or ()) or 1
    layers = []
    for place, given in enumerate(fanouts):
        if isinstance(given, (str, Mapping)):
            raise TypeError(f"fanouts[{place}] must be a number, or one an edge type in a tensor, but is {given!r}")
        fanout = torch.as_tensor(given).reshape(-1)
        if fanout.is_floating_point() or fanout.dtype == torch.bool:
            raise TypeError(f"fanouts[{place}] must be whole numbers, but is {given!r}")
        if len(fanout) not in (1, num_types):
            one_a_type = (
                f"or {num_types}, one an edge type of the graph" if num_types > 1 else "for the graph has one type"
            )
            raise ValueError(
                f"fanouts[{place}] has {len(fanout)} numbers; give 1 for all edges of a node together, {one_a_type}"
            )
        if int(fanout.min()) < -1:
            raise ValueError(f"fanouts[{place}] must be -1 (all neighbours) or more, but is {given!r}")
        layers.append(fanout.to(torch.int64))
    return layers


class FanoutSampler(SubgraphSampler):
    """A base for samplers that choose so many in-edges of each node: write `sample_hops`.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`.
        TypeError: No graph.
        ValueError: No fan-outs, or a layer with a wrong number of them.
    """

    graph: SamplingGraph
    fanouts: Fanouts
    """One a layer, the outermost layer first: a number, or one an edge type; -1 takes all neighbours."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    prob_name: str | None = None
    """The edge attribute that holds weights or a mask."""

    merges: ClassVar[bool] = True
    """Whether a node is one row of a layer, however many edges lead to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_graph(self.graph)
        parse_fanouts(self.fanouts, self.graph)
        if self.prob_name is not None and isinstance(self.graph, FusedCSCSamplingGraph):
            self.graph.edge_attribute(self.prob_name)

    @cached_property
    def layer_fanouts(self) -> list[torch.Tensor]:
        """The fan-outs of each layer as a tensor."""
        return parse_fanouts(self.fanouts, self.graph)

    def sample_hops(self, seeds: ByType) -> list[SampledSubgraph]:
        """Return a subgraph a layer around the seeds, the outermost first; a subclass writes it, or the hook."""
        raise NotImplementedError(f"{type(self).__name__} must write sample_hops")

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and a subgraph a layer, the outermost first; times are not looked at."""
        layers = self.sample_hops(seeds)
        rows = layers[0].original_row_node_ids
        assert rows is not None
        return rows, layers

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return what average in-degrees and the fan-outs let expect."""
        merged = self.merges and getattr(self, "deduplicate", True)
        return estimate_layers(before, self.graph, self.layer_fanouts, replace_edges=self.replace, merged=merged)

    def __getstate__(self) -> dict[str, Any]:
        """Make the weights' running sums before the graph is shared, so that workers share them too."""
        if self.prob_name is not None and isinstance(self.graph, FusedCSCSamplingGraph):
            self.graph.prepare_weights(self.prob_name)
        return vars(self).copy()


def refuse_cooperation(*, cooperative: bool) -> None:
    """Raise where ranks should sample together, for which there is nothing here."""
    if cooperative:
        raise ValueError(
            "cooperative must be False: ranks don't sample for each other here; "
            "leave it out, each rank then samples for its own seeds"
        )


def check_gpu_cache(num_gpu_cached_edges: int, gpu_cache_threshold: int) -> None:
    """Raise where the options of a cache of edges make no sense."""
    if num_gpu_cached_edges < 0:
        raise ValueError(f"num_gpu_cached_edges must be 0 (no cache) or more, but is {num_gpu_cached_edges}")
    if gpu_cache_threshold < 1:
        raise ValueError(f"gpu_cache_threshold must be 1 (at once) or more, but is {gpu_cache_threshold}")
