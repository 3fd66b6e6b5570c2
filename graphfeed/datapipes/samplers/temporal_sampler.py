"""What temporal samplers share."""

from dataclasses import replace

from graphfeed.datapipes.samplers.fanout_sampler import FanoutSampler
from graphfeed.datapipes.samplers.subgraph_sampler import with_input_nodes
from graphfeed.ops import draw_keys
from graphfeed.storage import SampledSubgraph, TemporalQuery
from graphfeed.storage.graph import ByType, HopTime, SamplingRequest, Strategy


class TemporalSampler(FanoutSampler):
    """The base class of samplers that respect the times of nodes and edges: write `chosen_by`.

    `fanouts` has one number per hop, the outermost hop first, as for `NeighborSampler`.

    Raises:
        KeyError: The graph doesn't have an attribute that is named; when it runs: seeds of an unknown node type.
        ValueError: No attribute with times, or options that exclude each other; when it runs: a mini-batch without
            `timestamp`, or with another number of times than seeds.
    """

    node_timestamp_attr_name: str | None = None
    """The node attribute with integer times; a neighbour exists after its time, one of a type without times always."""
    edge_timestamp_attr_name: str | None = None
    """The edge attribute with integer times; an edge exists after its time, one of a type without times always."""
    pre_time_window: int | None = None
    """How far back from its time a node may look, in the unit of the times; None: without limit. A mini-batch with
    `pre_time_window` has a window for each seed instead: name an item of the item set so."""
    hop_time: HopTime = "seed"
    """The time at which the next hop looks at a sampled neighbour: that of the seed that led to it, or of the edge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.node_timestamp_attr_name is None and self.edge_timestamp_attr_name is None:
            raise ValueError(
                "neither node_timestamp_attr_name nor edge_timestamp_attr_name is given, so no neighbour would be left "
                "out; name the attribute that holds the times, or sample with sample_neighbor"
            )

    @property
    def chosen_by(self) -> Strategy:
        """How edges are chosen among the eligible ones."""
        raise NotImplementedError(f"{type(self).__name__} must write chosen_by")

    def make_request(self) -> SamplingRequest:
        """Return the request that the stage makes to its graph."""
        names = (self.node_timestamp_attr_name, self.edge_timestamp_attr_name)
        query = TemporalQuery(*names, self.pre_time_window, self.hop_time)
        return replace(super().make_request(), strategy=self.chosen_by, deduplicate=False, temporal=query)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,
        seeds_pre_time_window: ByType | None = None,
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and one subgraph per hop, the outermost first; by default, in the stage's window."""
        if seeds_timestamp is None:
            raise ValueError(
                "seeds_timestamp must be provided for temporal neighbor sampling, but the mini-batch has no timestamp; "
                "name an item of the item set 'timestamp'"
            )
        request = self.request
        if seeds_pre_time_window is not None and request.temporal is not None:
            request = replace(request, temporal=replace(request.temporal, pre_time_window=seeds_pre_time_window))
        keys = draw_keys(len(request.fanouts))
        sample = getattr(self.graph, self.asks)
        return with_input_nodes(sample(seeds, request, keys, seeds_timestamp=seeds_timestamp))
