"""How a graph is sampled, whatever the seeds; which neighbours exist at a time; and one hop of a mini-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from graphfeed.ops import MASK, draw_key
from graphfeed.ops.arguments import brief, check_count, check_flags, check_seed, checked
from graphfeed.storage.graph.sampled_subgraph import ByType

HopTime: TypeAlias = Literal["seed", "edge"]


@dataclass(frozen=True, eq=False)
class TemporalQuery:
    """Which neighbours may be sampled at a given time.

    Raises:
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
    """How neighbours are sampled, whatever the seeds.

    A stage makes one when it is built, and hands it to its graph, also to be validated and to be prepared for.

    Raises:
        ValueError: An unknown strategy, or options that exclude each other.

    Example:
        >>> SamplingRequest([torch.tensor([10]), torch.tensor([5])], probs_name="weight").replace
        False
    """

    fanouts: Sequence[torch.Tensor]
    """One tensor per hop, the outermost hop first: one number, or one per edge type; -1 takes all neighbours. What is
    written to them once something was sampled need not be seen."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    probs_name: str | None = None
    """The edge attribute that holds weights or a mask; for the latest edges, a mask."""
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
    """Whether each seed has nodes of its own: nodes are merged inside the tree of a seed alone, and each tree draws by
    its own key, so that copies of a seed differ. By LABOR, trees share the variates of nodes. Needs `only_new`."""

    def __post_init__(self) -> None:
        strategies = ("uniform", "latest", "labor")
        strategy: object = self.strategy
        if not isinstance(strategy, str) or strategy not in strategies:
            raise ValueError(f"strategy must be one of {strategies}, but is {brief(self.strategy)}")
        if self.strategy == "latest" and self.replace:
            raise ValueError("strategy='latest' takes each edge once; leave out replace")
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


Draws: TypeAlias = tuple[tuple[int, ...] | torch.Tensor, int]
"""The two keys of a hop, or one per seed (`OneHop.keys`), and which share of the nodes draws by the second, in units of
2**-64; only LABOR uses more than the first key."""


class Hop(NamedTuple):
    """One hop of a mini-batch, whatever its nodes: what `SamplingGraph.pick` is asked for."""

    request: SamplingRequest
    """How it is sampled; in time, a window that is no number has one value per node."""
    draws: Draws
    number: int = 0
    """How many hops it is away from the seeds."""
    times: ByType | None = None
    """In time: when each node looks at the graph."""
    trees: ByType | None = None
    """With `disjoint`: the number of the seed in whose tree each node is. Nodes in different trees have different keys
    (`ops.fold(key, tree)`), except by LABOR."""

    @property
    def fanout(self) -> torch.Tensor:
        """One number, or one per edge type."""
        return self.request.fanouts[-1 - self.number]


def method_of(request: SamplingRequest) -> str | None:
    """Return the name of the method that a user may write for one hop of a request; None in time."""
    if request.temporal is not None:
        return None
    return "sample_layer_neighbors" if request.strategy == "labor" else "sample_neighbors"


def one_draw(key: Any) -> Draws:
    """Return the draws of a hop with one key."""
    check_count("key", key, 0, MASK)
    return (int(key), int(key)), 0


def draws_of(request: SamplingRequest, keys: Sequence[Any], seed2_contribution: float = 0.0) -> list[Draws]:
    """Return the draws of each hop: of its key or, by LABOR, of two keys and the share of the second."""
    if len(keys) != len(request.fanouts):
        raise ValueError(f"keys must hold {len(request.fanouts)} numbers, one per hop, but holds {len(keys)}")
    if request.strategy != "labor":
        return [one_draw(key) for key in keys]
    return [parse_seeds(key if hasattr(key, "__len__") else [key], seed2_contribution) for key in keys]


def parse_seeds(
    random_seed: torch.Tensor | Sequence[int] | None, seed2_contribution: float
) -> tuple[tuple[int, int], int]:
    """Return the two keys of a LABOR hop, and the share of the nodes that draw by the second, in units of 2**-64."""
    drawn: Any = [draw_key()] if random_seed is None else random_seed
    if not hasattr(drawn, "__iter__"):
        raise TypeError(f"random_seed must hold 1 or 2 numbers, but is {brief(drawn)}; put it in a list")
    seeds = [check_seed("random_seed", seed) & MASK for seed in drawn]
    if len(seeds) not in (1, 2):
        raise ValueError(f"random_seed must hold 1 or 2 numbers, but holds {len(seeds)}")
    if not isinstance(seed2_contribution, Real) or not 0 <= seed2_contribution <= 1:
        raise ValueError(f"seed2_contribution must lie in 0 .. 1, but is {brief(seed2_contribution)}")
    # All nodes draw by the second key; 2**64 would not fit into 64 bits.
    if seed2_contribution == 1:
        return (seeds[-1], seeds[-1]), 0
    return (seeds[0], seeds[-1]), int(seed2_contribution * 2**64)
