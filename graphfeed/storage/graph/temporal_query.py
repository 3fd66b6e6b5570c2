"""What is asked of a graph that is sampled in time."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphfeed.storage.graph.sampled_subgraph import ByType

Strategy: TypeAlias = Literal["uniform", "latest", "labor"]
HopTime: TypeAlias = Literal["seed", "edge"]


@dataclass(frozen=True)
class TemporalQuery:
    """Which neighbours may be sampled at a time, and how.

    Raises:
        ValueError: Values that are none of the named ones, or don't go together.

    Example:
        >>> TemporalQuery(edge_timestamp_attr_name="time", strategy="latest").replace
        False
    """

    node_timestamp_attr_name: str | None = None
    """The node attribute that says from when on a neighbour is there; None: always."""
    edge_timestamp_attr_name: str | None = None
    """The edge attribute that says from when on an edge is there; None: always."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    probs_name: str | None = None
    """The edge attribute that holds weights or a mask."""
    strategy: Strategy = "uniform"
    """At random, the latest edges, or at random by variates of the neighbours (LABOR)."""
    pre_time_window: int | ByType | None = None
    """How far back from its time a node may look: for all, or one a seed; None: as far as there is."""
    hop_time: HopTime = "seed"
    """When a sampled neighbour is looked at in the next hop: at its seed's time, or at that of the edge to it."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("strategy", self.strategy, ("uniform", "latest", "labor")),
            ("hop_time", self.hop_time, ("seed", "edge")),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, but is {value!r}")
        if self.strategy == "latest" and (self.replace or self.probs_name is not None):
            raise ValueError(
                "strategy='latest' takes each edge once and whatever its weight; leave replace and the weights out"
            )
        if self.hop_time == "edge" and self.edge_timestamp_attr_name is None:
            raise ValueError("hop_time='edge' needs the times of edges; give edge_timestamp_attr_name")
        window = self.pre_time_window
        if isinstance(window, bool) or (isinstance(window, int) and window < 0):
            raise ValueError(f"pre_time_window must be a whole number, 0 or more, but is {window!r}")
        if isinstance(window, float):
            raise TypeError(f"pre_time_window must be a whole number, as the times are, but is {window!r}")
