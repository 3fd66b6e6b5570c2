"""Random graphs, with types and times and weights. A plain graph has one type of nodes and of edges."""

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

import graphfeed as gf
from graphfeed.ops import ALWAYS
from tests.kinds import reference

LAST = 2**63 - 1
DEGREES = {"few": range(7), "some": [0, 3, 9, 16, 17, 33], "many": [2, 5, 9, 47, 48, 49], "huge": [3, 5, 5, 300]}
"""In-degrees of the nodes of a graph, on both sides of the sizes from which kernels work in another way."""


class Moments:
    """Times of which some are equal and some are extreme, and lengths of time windows."""

    def __init__(self, spread: int, chance: random.Random) -> None:
        self.chance, self.spread = chance, spread

    def time(self, *, always: bool = False) -> int:
        """Return a time; with `always`, perhaps that of what has no time."""
        if always and self.chance.random() < 0.2:
            return ALWAYS
        return self.chance.choice([-LAST, LAST]) if self.chance.random() < 0.04 else self.near()

    def near(self) -> int:
        return self.chance.randint(-self.spread, self.spread)

    def late(self) -> int:
        """Return a time after many others, or after all."""
        return self.chance.choice([LAST, self.time(), *(self.chance.randint(0, self.spread) for _ in range(6))])

    def window(self) -> int:
        """Return the length of a window: often one that has some of the times."""
        extreme = [0, 1, LAST]
        return self.chance.choice(extreme) if self.chance.random() < 0.2 else self.chance.randint(2, self.spread + 2)


@dataclass(frozen=True)
class RandomGraph:
    """Columns with isolated nodes, several edges between two nodes, empty types, and edge types that a column lacks."""

    first_ids: list[int]
    """The first id of each node type, and the number of nodes."""
    ends: list[tuple[int, int]]
    """The node types that each edge type joins."""
    order: list[int]
    """The order in which the edge types are given, which is that in which they add rows."""
    typed: bool
    indptr: list[int]
    indices: list[int]
    types: list[int]
    weights: list[float]
    edge_times: list[int]
    node_times: list[int]
    spread: int
    """The limit of most times."""
    edge_ids: list[int]

    @property
    def sizes(self) -> list[int]:
        return [end - first for first, end in zip(self.first_ids, self.first_ids[1:], strict=False)]

    @property
    def node_types(self) -> list[Any]:
        return [f"n{kind}" for kind in range(len(self.sizes))] if self.typed else [None]

    @property
    def edge_types(self) -> list[Any]:
        """The names of the edge types by their numbers."""
        if not self.typed:
            return [None]
        return [f"n{source}:r{kind}:n{end}" for kind, (source, end) in enumerate(self.ends)]

    @property
    def kinds(self) -> reference.Kinds:
        sources, destinations = ([own[side] for own in self.ends] for side in (0, 1))
        return reference.Kinds(self.first_ids, sources, destinations, self.order)

    def make(self, ids: torch.dtype, starts: torch.dtype) -> Any:
        """Return the graph with attributes "w", "mask", "time" and "born"."""
        names: dict[str, Any] = {}
        if self.typed:
            names["node_type_offset"] = torch.tensor(self.first_ids)
            # Kernels of other types than uint8 are compiled for int32 ids alone.
            names["type_per_edge"] = torch.tensor(self.types, dtype=torch.uint8 if ids == torch.int64 else torch.int16)
            names["node_type_to_id"] = {name: kind for kind, name in enumerate(self.node_types)}
            names["edge_type_to_id"] = {self.edge_types[kind]: kind for kind in self.order}
        weights = torch.tensor(self.weights, dtype=torch.float64)
        edges = {"w": weights, "mask": weights > 0, "time": torch.tensor(self.edge_times, dtype=torch.int64)}
        if self.edge_ids != list(range(len(self.indices))):
            edges[gf.ORIGINAL_EDGE_ID] = torch.tensor(self.edge_ids)
        return gf.fused_csc_sampling_graph(
            torch.tensor(self.indptr, dtype=starts), torch.tensor(self.indices, dtype=ids), **names,
            node_attributes={"born": torch.tensor(self.node_times, dtype=torch.int64)},
            edge_attributes=edges,
        )  # fmt: skip

    def in_lists(self, weights: str | None = None, nodes: str | None = None, edges: str | None = None) -> Any:
        """Return the graph for the reference, with the attributes of these names."""
        stamps: list[tuple[int, ...]] = [()] * len(self.indices)
        if edges:
            stamps = [(time,) for time in self.edge_times]
        if nodes:
            stamps = [(*own, self.node_times[node]) for own, node in zip(stamps, self.indices, strict=True)]
        given = self.weights if weights == "w" else [float(weight > 0) for weight in self.weights]
        units = None if weights is None else reference.weights_to_units(self.indptr, given)
        return reference.Graph(self.indptr, self.indices, self.types if self.typed else None, units, stamps)


def random_graph(
    chance: random.Random, num_types: int, degrees: str, spread: int, *, in_order: bool, numbered: bool
) -> RandomGraph:
    """Make a graph of up to 12 nodes; or of up to 4 node types, with up to 5 nodes each, if it has edge types.

    Args:
        chance: Draws everything else.
        num_types: Number of edge types; 0 for a plain graph.
        degrees: One of `DEGREES`.
        spread: The limit of most times.
        in_order: Whether the edges of each column are sorted by time.
        numbered: Whether edges have ids, which otherwise are their positions.
    """
    sizes = [chance.choice([1, 5, 9, 12, 12])]
    if num_types:
        sizes = chance.sample([0, 1, 3, 4, 5], chance.randint(1, min(num_types, 3)) + 1)
    ends = [(chance.randrange(len(sizes)), chance.randrange(len(sizes))) for _ in range(num_types or 1)]
    first_ids, columns = list(accumulate(sizes, initial=0)), list[list[tuple[int, int]]]()
    for end, size in enumerate(sizes):
        leading = [kind for kind, (source, own) in enumerate(ends) if own == end and sizes[source]]
        for _ in range(size):
            kinds = sorted(chance.choices(leading, k=chance.choice(DEGREES[degrees]))) if leading else []
            columns.append(
                [(kind, first_ids[ends[kind][0]] + chance.randrange(sizes[ends[kind][0]])) for kind in kinds]
            )
    edges, moments = reference.join(columns), Moments(spread, chance)
    edge_times = [[moments.time(always=True) for _ in column] for column in columns]
    return RandomGraph(
        first_ids, ends, chance.sample(range(len(ends)), len(ends)), num_types > 0,
        list(accumulate(map(len, columns), initial=0)), [node for _, node in edges], [kind for kind, _ in edges],
        [chance.choice([0.0, 0.0, 1e-12, 0.5, 1.0, 3.0]) for _ in edges],
        reference.join(map(sorted, edge_times) if in_order else edge_times),
        [moments.time(always=True) for _ in range(first_ids[-1])], spread,
        [7 * edge + 2**40 if numbered else edge for edge in range(len(edges))],
    )  # fmt: skip
