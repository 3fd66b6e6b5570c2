"""Which neighbours exist for a seed at a time."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphfeed.ops.arguments import brief, check_flags
from graphfeed.storage.graph.sampled_subgraph import ByType

HopTime: TypeAlias = Literal["seed", "edge"]


@dataclass(frozen=True, eq=False)
class TemporalQuery:
    """Which neighbours may be sampled at a given time.

    Raises:
        TypeError: A time window that is not an integer.
        ValueError: An unknown `hop_time`, one that lacks its attribute, or a negative time window.

    Example:
        >>> TemporalQuery(edge_timestamp_attr_name="time").hop_time
        'seed'
    """

    node_timestamp_attr_name: str | None = None
    """The node attribute with the time from which each node exists; None: all nodes always exist."""
    edge_timestamp_attr_name: str | None = None
    """The edge attribute with the time from which each edge exists; None: all edges always exist."""
    pre_time_window: int | ByType | None = None
    """How far back a node may look from its time: for all seeds, or one value per seed; None: without limit."""
    hop_time: HopTime = "seed"
    """The time at which the next hop looks at a sampled neighbour: its seed's, or that of the edge to it."""
    inclusive: bool = False
    """Whether what has the time of the seed itself exists for it already, and what is as old as the window still."""

    def __post_init__(self) -> None:
        check_flags(inclusive=self.inclusive)
        hop_time: object = self.hop_time
        if not isinstance(hop_time, str) or hop_time not in ("seed", "edge"):
            raise ValueError(f"hop_time must be one of ('seed', 'edge'), but is {brief(self.hop_time)}")
        if self.hop_time == "edge" and self.edge_timestamp_attr_name is None:
            raise ValueError("hop_time='edge' needs the times of edges; give edge_timestamp_attr_name")
        window = self.pre_time_window
        if isinstance(window, bool) or (isinstance(window, int) and not 0 <= window < 2**63):
            raise ValueError(f"pre_time_window must be a whole number, 0 or more, but is {brief(window)}")
        if isinstance(window, float):
            raise TypeError(f"pre_time_window must be a whole number, as the times are, but is {brief(window)}")
