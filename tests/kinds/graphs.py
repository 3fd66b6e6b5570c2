"""Random graphs and tensors that the tests of several ops share."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import strategies as st

from graphfeed import ops
from tests.kinds import reference
from tests.kinds.hops import record

ID_DTYPES = [torch.int32, torch.int64]
WIDE = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.int16, torch.int32, torch.int64)]
TYPE_DTYPES = [torch.uint8, *WIDE]
"""Of the types of edges. All but uint8 become int32, and graphs with more than 256 types are rare."""
DEGREES = st.one_of(st.integers(0, 6), st.sampled_from([0, 47, 48, 49, 50, 130]))
FANOUTS = st.sampled_from([-1, 0, 1, 2, 3, 5, 47, 48, 49, 60, 200])
"""Below, at and beyond the fan-out from which a kernel looks its picks up in a hash table."""
KEYS = st.integers(0, 2**64 - 1)


@dataclass(frozen=True)
class Graph:
    """Columns with isolated nodes, several edges between two nodes, weights of 0, and types that a column lacks."""

    indptr: list[int]
    indices: list[int]
    weights: list[float]
    types: list[int]
    num_types: int

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def units(self) -> list[int]:
        return reference.weights_to_units(self.indptr, self.weights)

    def arrays(
        self,
        starts: torch.dtype = torch.int64,
        ids: torch.dtype = torch.int64,
        *,
        weighted: bool = False,
        types: torch.dtype | None = None,
        put: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    ) -> ops.Graph:
        """Return the arrays that `put` makes, in some dtypes; without a dtype of types, these are left out."""
        sums = torch.tensor(reference.cumulate_weights(self.indptr, self.weights), dtype=torch.int64)
        return record(
            put(torch.tensor(self.indptr, dtype=starts)),
            put(torch.tensor(self.indices, dtype=ids)),
            cumulative=put(sums) if weighted else None,
            types=None if types is None else put(torch.tensor(self.types, dtype=types)),
            num_types=self.num_types,
        )


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Make a graph of 0 to 12 nodes."""
    degrees = draw(st.lists(DEGREES, max_size=12))
    num_types = draw(st.integers(2, 4))
    chance = random.Random(draw(st.integers(0, 2**32)))
    num_edges = sum(degrees)
    return Graph(
        indptr=list(accumulate(degrees, initial=0)),
        indices=[chance.randrange(len(degrees)) for _ in range(num_edges)],
        weights=[chance.choice([0.0, 0.0, 1e-12, 0.5, 1.0, 3.0]) for _ in range(num_edges)],
        types=[kind for degree in degrees for kind in sorted(chance.choices(range(num_types), k=degree))],
        num_types=num_types,
    )


@st.composite
def graphs_and_seeds(draw: st.DrawFn) -> tuple[Graph, list[int]]:
    """Make a graph, and seeds of which some may be equal."""
    graph = draw(graphs())
    if graph.num_nodes == 0:
        return graph, []
    return graph, draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=8))


def split(picks: ops.Picks) -> list[list[int]]:
    """Return the positions column by column."""
    return [picks.positions[low:high].tolist() for low, high in pairwise(picks.offsets.tolist())]


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return equal values that don't lie side by side."""
    return torch.stack([tensor, torch.full_like(tensor, 1)], dim=1)[:, 0]


def equal_columns(count: int, degree: int) -> torch.Tensor:
    """Return the column starts of a graph whose nodes all have the same in-degree."""
    return torch.arange(count + 1) * degree
