"""The base class of temporal samplers."""

from dataclasses import replace

from graphfeed.datapipes.samplers.fanout_sampler import FanoutSampler
from graphfeed.storage import TemporalQuery
from graphfeed.storage.graph import HopTime, SamplingRequest, Seeds, Strategy


class TemporalSampler(FanoutSampler, seeded=False):
    """Base class of samplers that respect the times of nodes and edges. Subclasses implement `chosen_by`.

    `fanouts` has one number per hop, the outermost hop first, as for `NeighborSampler`.

    Raises:
        KeyError: The graph lacks an attribute that is named; when it runs: seeds of an unknown node type.
        ValueError: No attribute with times, or options that exclude each other; when it runs: a mini-batch without
            `timestamp`, or with another number of times than seeds.
    """

    node_timestamp_attr_name: str | None = None
    """The node attribute with integer times. A neighbour exists after its time, and always if its type has no times."""
    edge_timestamp_attr_name: str | None = None
    """The edge attribute with integer times. An edge exists after its time, and always if its type has no times."""
    pre_time_window: int | None = None
    """Length of the window before a node's time, in the unit of the times; None: unlimited. If the mini-batch has
    `pre_time_window`, it has a window for each seed instead: give the item set a member of that name."""
    hop_time: HopTime = "seed"
    """The time at which the next hop samples around a neighbour: that of the seed that led to it, or of the edge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.node_timestamp_attr_name is None and self.edge_timestamp_attr_name is None:
            raise ValueError(
                "neither node_timestamp_attr_name nor edge_timestamp_attr_name is given, so no neighbour would be left "
                "out; name the attribute that holds the times, or sample with sample_neighbor"
            )

    @property
    def chosen_by(self) -> Strategy:
        """The strategy that chooses among the eligible edges."""
        raise NotImplementedError(f"{type(self).__name__} must implement chosen_by")

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph."""
        names = (self.node_timestamp_attr_name, self.edge_timestamp_attr_name)
        query = TemporalQuery(*names, self.pre_time_window, self.hop_time)
        return replace(super().make_request(), strategy=self.chosen_by, deduplicate=False, temporal=query)

    def seeds_to_sample(self, seeds: Seeds) -> Seeds:
        """Return the seeds, which must have times. If they have no windows, that of the stage applies."""
        if seeds.times is None:
            raise ValueError(
                "seeds_timestamp must be provided for temporal neighbor sampling, but the mini-batch has no timestamp; "
                "name an item of the item set 'timestamp'"
            )
        return seeds
