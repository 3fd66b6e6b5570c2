"""How a graph is sampled, whatever the seeds, and which neighbours exist at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from graphfeed.ops.arguments import brief, check_flags, checked
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


Strategy: TypeAlias = Literal["uniform", "latest", "labor"]


@checked
@dataclass(frozen=True, eq=False)
class SamplingRequest:
    """How neighbours are sampled, whatever the seeds: fan-outs, weights, replacement and strategy.

    A stage makes one when it is built, and hands it to its graph: to be validated, to be prepared for, and with each
    mini-batch.

    Raises:
        ValueError: An unknown strategy, or options that exclude each other.

    Example:
        >>> SamplingRequest([torch.tensor([10]), torch.tensor([5])], probs_name="weight").replace
        False
    """

    fanouts: Sequence[torch.Tensor]
    """One tensor per hop, the outermost hop first: one number, or one per edge type; -1 takes all neighbours."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    probs_name: str | None = None
    """The edge attribute that holds weights or a mask."""
    strategy: Strategy = "uniform"
    """At random; the latest edges, which needs `temporal`; or at random by variates of the neighbours (LABOR)."""
    deduplicate: bool = True
    """Whether a node gets one row, however many edges lead to it; in time, every edge has a row of its own."""
    temporal: TemporalQuery | None = None
    """Which neighbours existed in time; None: times are ignored."""
    only_new: bool = False
    """Whether each hop samples only the nodes that the hop before found, so that each node is sampled once; otherwise,
    all nodes found so far."""
    disjoint: bool = False
    """Whether each seed has nodes of its own: nodes are merged inside the tree of a seed alone. Needs `only_new`."""

    def __post_init__(self) -> None:
        strategies = ("uniform", "latest", "labor")
        strategy: object = self.strategy
        if not isinstance(strategy, str) or strategy not in strategies:
            raise ValueError(f"strategy must be one of {strategies}, but is {brief(self.strategy)}")
        if self.strategy == "latest" and (self.replace or self.probs_name is not None):
            raise ValueError(
                "strategy='latest' takes each edge once, whatever its weight; leave out replace and the weights"
            )
        if self.strategy == "latest" and self.temporal is None:
            raise ValueError("strategy='latest' needs timestamps; give a TemporalQuery")
        if self.disjoint and not self.only_new:
            raise ValueError("disjoint needs only_new=True, as a node in a tree is sampled once; set both")
        if self.only_new and not self.deduplicate:
            raise ValueError("only_new merges nodes, so that each is sampled once; leave out deduplicate=False")
        if self.only_new and self.temporal is not None and not self.disjoint:
            raise ValueError("only_new in time needs disjoint=True, as each seed has a time of its own; set both")
        if self.disjoint and self.temporal is not None and self.temporal.hop_time != "seed":
            raise ValueError(
                "disjoint needs hop_time='seed': a node in the tree of a seed is one, whichever edge leads to it"
            )
