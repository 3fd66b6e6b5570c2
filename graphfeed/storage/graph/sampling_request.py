"""Parameters of sampling: `Seeds`, `SamplingRequest`, `TemporalQuery` and `Hop`, and the keys of hops."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from graphfeed.ops import MASK, draw_key
from graphfeed.ops.arguments import as_tensor, brief, check_count, check_flags, check_seed, checked, holds_whole
from graphfeed.storage.graph.by_type import ByType

HopTime: TypeAlias = Literal["seed", "edge"]


class Seeds(NamedTuple):
    """The nodes to sample around, with their times and windows for temporal sampling; by node type, like the graph."""

    ids: ByType
    times: ByType | None = None
    """The time of each seed."""
    windows: ByType | None = None
    """Length of each seed's time window. None: all have that of the request."""

    @classmethod
    def of(cls, seeds: "ByType | Seeds", times: ByType | None = None) -> "Seeds":
        """Return seeds, given as such or as ids."""
        return seeds if isinstance(seeds, Seeds) else cls(seeds, times)

    @property
    def on_cpu(self) -> bool:
        """Whether all ids are on the CPU."""
        parts = self.ids.values() if isinstance(self.ids, dict) else [self.ids]
        return all(getattr(part, "is_cpu", True) for part in parts)


@dataclass(frozen=True)
class TemporalQuery:
    """Parameters of temporal sampling: which neighbours are eligible at the time of a node.

    Attributes:
        node_timestamp_attr_name: Node attribute with the time from which each node exists. None: all nodes always
            exist.
        edge_timestamp_attr_name: Edge attribute with the time from which each edge exists. None: all edges always
            exist.
        pre_time_window: Length of the time window before the time of a node, unless the seeds have windows (`Seeds`).
            None: no limit.
        hop_time: Time of a sampled neighbour in the next hop: "seed", the time of its seed, or "edge", that of its
            edge.
        inclusive: Whether the time window includes both of its limits: the time of the node, and that minus the window.

    Raises:
        ValueError: `hop_time` is unknown or lacks its attribute, or the time window is negative.

    Example:
        >>> TemporalQuery(edge_timestamp_attr_name="time").hop_time
        'seed'
    """

    node_timestamp_attr_name: str | None = None
    edge_timestamp_attr_name: str | None = None
    pre_time_window: int | None = None
    hop_time: HopTime = "seed"
    inclusive: bool = False

    def __post_init__(self) -> None:
        check_flags(inclusive=self.inclusive)
        hop_time: object = self.hop_time
        if not isinstance(hop_time, str) or hop_time not in ("seed", "edge"):
            raise ValueError(f"hop_time must be one of ('seed', 'edge'), but is {brief(self.hop_time)}")
        if self.hop_time == "edge" and self.edge_timestamp_attr_name is None:
            raise ValueError("hop_time='edge' needs the times of edges; give edge_timestamp_attr_name")
        window = self.pre_time_window
        if isinstance(window, bool) or (isinstance(window, int) and not 0 <= window < 2**63):
            raise ValueError(f"pre_time_window must be an integer, 0 or more, but is {brief(window)}")
        if isinstance(window, float):
            raise TypeError(f"pre_time_window must be an integer, as the times are, but is {brief(window)}")


Strategy: TypeAlias = Literal["uniform", "latest", "labor"]


@checked
@dataclass(frozen=True)
class SamplingRequest:
    """Parameters of neighbour sampling, without the seeds. A graph prepares equal requests once.

    Fan-outs and sampled hops begin with the outermost hop; keys and draws begin with the seeds' own hop.

    Attributes:
        fanouts: Per hop, the outermost hop first: one number, or one per edge type; -1 takes all neighbours. Tensors
            and lists become tuples.
        replace: Whether an edge may be sampled more than once.
        probs_name: Edge attribute with weights or a mask; "latest" supports only masks.
        strategy: Random edges ("uniform"), the latest ones ("latest", needs `temporal`), or variates of neighbours
            ("labor").
        deduplicate: Whether a node has one row, however many edges lead to it. Temporal hops have a row per edge,
            unless disjoint.
        temporal: Parameters of temporal sampling. None: timestamps are ignored.
        only_new: Whether the frontier of each hop has only nodes that are new in the previous hop, so that each node is
            sampled once; otherwise, it has all nodes found so far.
        disjoint: Whether each seed has its own tree: nodes are merged only inside a tree, and each tree has its own
            key, so that duplicates of a seed differ. With "labor", trees share the variates of nodes. Needs `only_new`.

    Raises:
        ValueError: The strategy is unknown, or options exclude each other.

    Example:
        >>> SamplingRequest([torch.tensor([10]), [5]], probs_name="weight").fanouts
        ((10,), (5,))
    """

    fanouts: Sequence[Any]
    replace: bool = False
    probs_name: str | None = None
    strategy: Strategy = "uniform"
    deduplicate: bool = True
    temporal: TemporalQuery | None = None
    only_new: bool = False
    disjoint: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", tuple(map(as_fanout, self.fanouts)))
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
            raise ValueError("temporal only_new needs disjoint=True, as each seed has its own time; set both")
        if self.disjoint and self.temporal is not None and self.temporal.hop_time != "seed":
            raise ValueError(
                "disjoint needs hop_time='seed': a node occurs once in the tree of a seed, whichever edge leads to it"
            )


def as_fanout(fanout: Any) -> tuple[int, ...]:
    """Return the fan-outs of a hop as integers."""
    if isinstance(fanout, tuple) and all(type(number) is int for number in fanout):
        return fanout
    values = as_tensor("fanouts", fanout)
    if values.dim() != 1 or not holds_whole(values):
        raise TypeError(f"fanouts must have one integer, or one per edge type, but is {brief(fanout)}")
    return tuple(values.tolist())


@lru_cache(maxsize=64)
def fanout_tensor(fanout: tuple[int, ...]) -> torch.Tensor:
    """Return fan-outs as operations and users' graphs take them; do not modify the tensor."""
    return torch.tensor(fanout, device="cpu")


Draws: TypeAlias = tuple[tuple[int, ...] | torch.Tensor, int]
"""Two keys of a hop, or one key per seed (`OneHop.keys`), and the share of the nodes that draw with the second key, in
units of 2**-64. Only LABOR uses more than the first key."""


class Hop(NamedTuple):
    """Parameters of one hop of a mini-batch for `SamplingGraph.pick`, without the nodes."""

    request: SamplingRequest
    """Parameters of sampling."""
    draws: Draws
    number: int = 0
    """Distance of the hop from the seeds; 0 for the seeds' own hop."""
    times: ByType | None = None
    """For temporal sampling, the time of each node."""
    trees: ByType | None = None
    """With `disjoint`, the number of the seed to whose tree each node belongs. Trees have different keys
    (`ops.fold(key, tree)`), except with LABOR."""
    windows: ByType | None = None
    """Length of each node's time window. None: that of the request."""

    @property
    def fanout(self) -> torch.Tensor:
        """Fan-out of this hop: one number, or one per edge type."""
        return fanout_tensor(self.request.fanouts[-1 - self.number])


def one_draw(key: Any) -> Draws:
    """Return the draws of a hop with a single key."""
    check_count("key", key, 0, MASK)
    return (int(key), int(key)), 0


def draws_of(request: SamplingRequest, keys: Sequence[Any], seed2_contribution: float = 0.0) -> list[Draws]:
    """Return the draws of each hop, the seeds' own hop first; with LABOR, a hop may have two keys."""
    if len(keys) != len(request.fanouts):
        raise ValueError(f"keys must hold {len(request.fanouts)} numbers, one per hop, but holds {len(keys)}")
    if request.strategy != "labor":
        return [one_draw(key) for key in keys]
    return [parse_seeds(key if hasattr(key, "__len__") else [key], seed2_contribution) for key in keys]


def parse_seeds(
    random_seed: torch.Tensor | Sequence[int] | None, seed2_contribution: float
) -> tuple[tuple[int, int], int]:
    """Return the two keys of a LABOR hop, and the share of nodes that draw with the second, in units of 2**-64."""
    drawn: Any = [draw_key()] if random_seed is None else random_seed
    if not hasattr(drawn, "__iter__"):
        raise TypeError(f"random_seed must hold 1 or 2 numbers, but is {brief(drawn)}; put it in a list")
    seeds = [check_seed("random_seed", seed) & MASK for seed in drawn]
    if len(seeds) not in (1, 2):
        raise ValueError(f"random_seed must hold 1 or 2 numbers, but holds {len(seeds)}")
    if not isinstance(seed2_contribution, Real) or not 0 <= seed2_contribution <= 1:
        raise ValueError(f"seed2_contribution must be in 0 .. 1, but is {brief(seed2_contribution)}")
    # All nodes draw with the second key; 2**64 would not fit into 64 bits.
    if seed2_contribution == 1:
        return (seeds[-1], seeds[-1]), 0
    return (seeds[0], seeds[-1]), int(seed2_contribution * 2**64)
