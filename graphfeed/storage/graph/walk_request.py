"""Parameters of random walks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from numbers import Real
from typing import Any

from graphfeed.ops.arguments import brief, check_count, check_known, checked, is_list
from graphfeed.ops.sampling import MOST_STEPS, WalkSteps
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.type_names import ends_of, type_name

MOST_WALKS = (1 << 23) - 1
"""Upper limit of the number of walks from a seed."""


@checked
@dataclass(frozen=True)
class WalkRequest:
    """Parameters of random walks, without the seeds. `SamplingGraph.sample_walks` describes the walks.

    Attributes:
        length: Number of steps.
        per_seed: Number of walks from each seed.
        p: Return parameter of node2vec: the chance to go back to the node before is divided by it.
        q: In-out parameter of node2vec: the chance to go to a node without an edge to the node before is divided by it.
        stop: Chance that a walk ends before a step; or a number for each step.
        probs_name: Edge attribute with weights or a mask; None: all edges of a node are equally likely.
        etypes: The edge type of each step, a metapath, repeated until there are enough.

    Raises:
        ValueError: A number is out of range, or the edge types don't join.

    Example:
        >>> WalkRequest(4, etypes=["item:of:user", ("user", "of", "item")]).etypes
        ('item:of:user', 'user:of:item', 'item:of:user', 'user:of:item')
    """

    length: int
    per_seed: int = 1
    p: float = 1.0
    q: float = 1.0
    stop: float | Sequence[float] = 0.0
    probs_name: str | None = None
    etypes: Sequence[Any] = ()

    def __post_init__(self) -> None:
        check_count("length", self.length, 0, MOST_STEPS)
        check_count("per_seed", self.per_seed, 1, MOST_WALKS)
        for name, value in (("p", self.p), ("q", self.q)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0, but is {brief(value)}")
        given: Any = self.stop
        stops = tuple(given) if is_list(given) else (given,) * self.length if given else ()
        if len(stops) not in (0, self.length):
            raise ValueError(f"stop must be a number, or {self.length}: one per step, but has {len(stops)}")
        if not all(isinstance(stop, Real) and 0 <= float(stop) <= 1 for stop in stops):
            raise ValueError(f"stop must be in 0 .. 1, but is {brief(self.stop)}")
        names = [type_name(name) for name in self.etypes]
        if not all(isinstance(name, str) and name.count(":") == 2 for name in names):
            raise ValueError(f"etypes must hold names 'source:relation:destination', but are {brief(self.etypes)}")
        etypes = tuple(islice(cycle(names), self.length)) if names else ()
        for before, after in pairwise(etypes):
            if ends_of(before)[0] != ends_of(after)[1]:
                raise ValueError(
                    f"etypes have {after!r} after {before!r}, but a walk goes from the destination of an edge to its "
                    f"source, and {ends_of(before)[0]!r} is not {ends_of(after)[1]!r}"
                )
        object.__setattr__(self, "stop", tuple(map(float, stops)))
        object.__setattr__(self, "etypes", etypes)

    @property
    def is_second_order(self) -> bool:
        """Whether a step depends on the node before (node2vec)."""
        return self.p != 1 or self.q != 1

    @property
    def node_types(self) -> list[str | None]:
        """The node type of each node of a walk; None without types."""
        if not self.etypes:
            return [None] * (self.length + 1)
        return [ends_of(self.etypes[0])[1], *(ends_of(name)[0] for name in self.etypes)]

    def steps(self, edge_types: Sequence[str]) -> WalkSteps:
        """Return the steps for kernels, given the edge types of the graph in the order of their numbers."""
        assert isinstance(self.stop, tuple)
        kinds = [edge_types.index(name) for name in self.etypes]
        return WalkSteps(self.length, self.p, self.q, self.stop, kinds)

    def hop(self, edge_types: Sequence[str], step: int = 0, count: int = 1) -> SamplingRequest:
        """Return the request of a hop that draws `count` edges for a step of each walk."""
        wanted = self.etypes[step] if self.etypes else None
        fanout = [count * (name == wanted) for name in edge_types] if self.etypes else [count]
        return SamplingRequest([fanout], count > 1, self.probs_name)

    def check_types(self, edge_types: Sequence[str]) -> None:
        """Raise unless the request has edge types of the graph, given in order, if it has any."""
        if edge_types and not self.etypes and self.length:
            raise ValueError(
                "random walks on a graph with types need the edge type of each step; give etypes, of "
                f"{brief(list(edge_types))}"
            )
        if self.etypes and not edge_types:
            raise ValueError("etypes are given, but the graph has no types; leave them out")
        check_known("etypes", self.etypes, edge_types, "edge type")
