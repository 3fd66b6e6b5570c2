"""Random graphs with types, their seeds and hops, and a larger graph with three node types."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import torch
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests import reference, reference_hops
from tests.ops.graphs import FANOUTS, KEYS

T = TypeVar("T")
Hops = list[tuple[list[int], int]]
"""The fan-outs and the key of each."""


@dataclass(frozen=True)
class Typed:
    """Empty node types, isolated nodes, edge types that join a node type to itself, and some without any edge."""

    first_ids: list[int]
    ends: list[tuple[int, int]]
    order: list[int]
    indptr: list[int]
    indices: list[int]
    types: list[int]
    weights: list[float]

    @property
    def graph(self) -> tuple[list[int], list[int], list[int]]:
        return self.indptr, self.indices, self.types

    @property
    def kinds(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return self.first_ids, [source for source, _ in self.ends], [end for _, end in self.ends], self.order

    def arrays(self, dtype: torch.dtype, *, weighted: bool = False) -> ops.HopGraph:
        sums = torch.tensor(reference.cumulate_weights(self.indptr, self.weights), dtype=torch.int64)
        return ops.HopGraph(
            torch.tensor(self.indptr, dtype=dtype), torch.tensor(self.indices, dtype=dtype),
            torch.tensor(self.types, dtype=torch.uint8), torch.tensor(self.first_ids),
            torch.tensor(self.ends, dtype=torch.int64).reshape(-1, 2), torch.tensor(self.order, dtype=torch.int64),
            sums if weighted else None,
        )  # fmt: skip


@st.composite
def typed_graphs(draw: st.DrawFn) -> Typed:
    """Make a graph of 1 to 5 node types, and of 0 to 60 edge types."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    num_types = draw(st.sampled_from([0, 1, 2, 3, 60]))
    chance = random.Random(draw(st.integers(0, 2**32)))
    ends = [(chance.randrange(len(sizes)), chance.randrange(len(sizes))) for _ in range(num_types)]
    order = chance.sample(range(num_types), num_types)
    most = draw(st.sampled_from([3, 10, 60]))
    columns: list[list[tuple[int, int]]] = []
    first_ids = list(accumulate(sizes, initial=0))
    for end, size in enumerate(sizes):
        leading = [kind for kind, (source, own) in enumerate(ends) if own == end and sizes[source]]
        for _ in range(size):
            degree = chance.randrange(most) if leading else 0
            kinds = sorted(chance.choices(leading, k=degree)) if degree else []
            columns.append([(kind, chance.randrange(sizes[ends[kind][0]])) for kind in kinds])
    edges = reference.join(columns)
    return Typed(
        first_ids, ends, order, list(accumulate(map(len, columns), initial=0)),
        [first_ids[ends[kind][0]] + node for kind, node in edges], [kind for kind, _ in edges],
        [chance.choice([0.0, 1e-12, 0.5, 1.0, 3.0]) for _ in edges],
    )  # fmt: skip


@st.composite
def hops_of(draw: st.DrawFn, typed: Typed) -> Hops:
    """Make a fan-out and a key for each of one to three hops."""
    counts = [draw(st.sampled_from([1, max(len(typed.ends), 1)])) for _ in range(draw(st.integers(1, 3)))]
    return [(draw(st.lists(FANOUTS, min_size=count, max_size=count)), draw(KEYS)) for count in counts]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Typed, list[list[int]], Hops]:
    """Make a graph, seeds of which some may be equal, and hops."""
    typed = draw(typed_graphs())
    sizes = [end - start for start, end in zip(typed.first_ids, typed.first_ids[1:], strict=False)]
    seeds = [draw(st.lists(st.integers(0, size - 1), max_size=4)) if size else [] for size in sizes]
    return typed, seeds, draw(hops_of(typed))


def as_lists(hops: Sequence[ops.SampledHop], typed: Typed) -> list[reference_hops.TypedHop]:
    """Return the hops as the reference has them: every edge type is there."""
    found = []
    for hop in hops:
        columns, rows = ([part.tolist() for part in parts] for parts in (hop.columns, hop.rows))
        edges = reference_hops.TypedHop(columns, rows, [], [], [])
        for kind, (_, end) in enumerate(typed.ends):
            own = hop.edges.get(kind)
            edges.indptr.append([0] * (len(columns[end]) + 1) if own is None else own.indptr.tolist())
            edges.indices.append([] if own is None else own.indices.tolist())
            edges.positions.append([] if own is None else own.positions.tolist())
        found.append(edges)
    return found


SHARES = st.sampled_from([0, 1 << 62, 3 << 62])


def draws_of(method: Method, hops: Sequence[tuple[T, int]], share: int) -> tuple[list[Any], list[tuple[T, Any]]]:
    """Return the keys of an operation, and the fan-outs and draws that the reference takes."""
    if method != "labor":
        return [key for _, key in hops], list(hops)
    return [(key, key ^ 5) for _, key in hops], [(fanouts, ((key, key ^ 5), share)) for fanouts, key in hops]


def random_graph(num_nodes: int = 600) -> ops.HopGraph:
    """Return a graph of three node types and five edge types; the middle type is no type's source."""
    chance = torch.Generator().manual_seed(1)
    first_ids = torch.tensor([0, num_nodes // 2, num_nodes // 2 + 50, num_nodes])
    ends = torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 2]])
    kinds = torch.randint(0, 5, (20_000,), generator=chance)
    sources, destinations = (
        first_ids[side[kinds]] + (torch.rand(20_000, generator=chance) * (first_ids.diff()[side[kinds]])).long()
        for side in ends.T
    )
    order = torch.argsort(destinations * 5 + kinds)
    indptr, _, _ = ops.coo_to_csc(sources, destinations, num_nodes)
    return ops.HopGraph(indptr, sources[order], kinds[order].to(torch.uint8), first_ids, ends, torch.arange(5))


SEEDS = [torch.arange(0, 300, 7), torch.tensor([3, 3]), torch.tensor([], dtype=torch.int64)]


HOPS = [torch.tensor([4]), torch.tensor([1, 2, 3, 0, -1])]


def text(hops: Any) -> str:
    """Return the rows of hops, and the positions of the edge types that have edges."""
    found = []
    for hop in hops:
        positions = {kind: own.positions.tolist() for kind, own in sorted(hop.edges.items()) if len(own.positions)}
        found.append(([own.tolist() for own in (*hop.columns, *hop.rows)], positions))
    return str(found)
