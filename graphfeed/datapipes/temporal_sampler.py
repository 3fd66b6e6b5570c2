"""What samplers in time share."""

from typing import Any

from graphfeed.datapipes.fanout_sampler import FanoutSampler
from graphfeed.ops import draw_key
from graphfeed.storage import FusedCSCSamplingGraph, SampledSubgraph, TemporalQuery
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.temporal_query import HopTime, Strategy


class TemporalSampler(FanoutSampler):
    """A base for samplers that look at the times of nodes and edges: write `chosen_by`.

    Raises:
        KeyError: The graph has no such attribute.
        ValueError: No attribute with times, wrong fan-outs, or options that don't go together; when it runs: a
            mini-batch without `timestamp`.
    """

    node_timestamp_attr_name: str | None = None
    """The node attribute with integer times, for all node types; a neighbour is there after its time."""
    edge_timestamp_attr_name: str | None = None
    """The edge attribute with integer times, for all edge types; an edge is there after its time."""
    pre_time_window: int | None = None
    """How far back from its time a node may look, in the unit of the times; None: as far as there is."""
    hop_time: HopTime = "seed"
    """When a sampled neighbour is looked at in turn: at the time of the seed that led to it, or at that of the edge."""

    merges = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.node_timestamp_attr_name is None and self.edge_timestamp_attr_name is None:
            raise ValueError(
                "neither node_timestamp_attr_name nor edge_timestamp_attr_name is given, so no neighbour would be kept "
                "out; name the attribute that holds the times, or sample with sample_neighbor"
            )
        self.rule(self.pre_time_window)
        if isinstance(self.graph, FusedCSCSamplingGraph):
            if self.node_timestamp_attr_name is not None:
                self.graph.node_attribute(self.node_timestamp_attr_name)
            if self.edge_timestamp_attr_name is not None:
                self.graph.edge_attribute(self.edge_timestamp_attr_name)

    @property
    def chosen_by(self) -> Strategy:
        """How edges are chosen among the eligible ones."""
        raise NotImplementedError(f"{type(self).__name__} must write chosen_by")

    def rule(self, window: int | ByType | None) -> TemporalQuery:
        """Return what the graph is asked for."""
        names = (self.node_timestamp_attr_name, self.edge_timestamp_attr_name)
        return TemporalQuery(*names, self.replace, self.prob_name, self.chosen_by, window, self.hop_time)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,
        seeds_pre_time_window: ByType | None = None,
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and a subgraph a layer, the outermost first.

        Args:
            seeds: Node ids; by node type if the graph has types.
            seeds_timestamp: The time of each.
            seeds_pre_time_window: How far back each may look; None: as far as the stage says.
        """
        if seeds_timestamp is None:
            raise ValueError(
                "seeds_timestamp must be provided for temporal neighbor sampling, but the mini-batch has no timestamp; "
                "name an item of the item set 'timestamp'"
            )
        keys = [draw_key(hop) for hop in range(len(self.fanouts))]
        rule = self.rule(self.pre_time_window if seeds_pre_time_window is None else seeds_pre_time_window)
        layers = self.graph.temporal_sample_hops(seeds, seeds_timestamp, self.layer_fanouts, keys, rule)
        rows = layers[0].original_row_node_ids
        assert rows is not None
        return rows, layers

    def __getstate__(self) -> dict[str, Any]:
        """Bring the edges into the order of time before the graph is shared, so that workers share that too."""
        if isinstance(self.graph, FusedCSCSamplingGraph):
            for by_type in {len(fanout) > 1 for fanout in self.layer_fanouts}:
                self.graph.prepare_times(self.rule(self.pre_time_window), by_type=by_type)
        return vars(self).copy()
