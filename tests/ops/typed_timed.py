"""Random graphs with types and times, and the slow obvious version of sampling all their hops, which tests share."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference, reference_hops
from tests.ops.timed import Moments, TimedGraph
from tests.ops.typed import Typed, as_lists, hops_of, typed_graphs

Row = tuple[int, int, int | None]
"""A node of a type, its time and its window."""
Draws = int | tuple[tuple[int, int], int]
"""A key, or the two keys and the share of LABOR."""


@dataclass(frozen=True)
class TypedInTime:
    """A graph with no, one or two times per edge, seeds with their times, and how all hops are sampled."""

    typed: Typed
    stamps: list[tuple[int, ...]]
    edge_times: list[int] | None
    seeds: list[list[Row]]
    hops: list[tuple[list[int], int]]
    windowed: bool
    linked: bool
    weighted: bool
    replace: bool
    first_edges: int

    def timed(self, dtype: torch.dtype) -> tuple[ops.TemporalGraph, ops.TemporalGraph]:
        """Return what is by rank, sorted within columns and within edge types."""
        typed = self.typed
        graph = TimedGraph(typed.indptr, typed.indices, self.stamps, typed.weights, typed.types, [], [], None)
        own = None if self.edge_times is None else torch.tensor(self.edge_times, dtype=torch.int64)
        made = []
        for by_type in (False, True):
            columns = graph.columns(dtype, weighted=self.weighted, by_type=by_type)._replace(edge_times=own)
            made.append(graph.linked(columns) if self.linked else columns)
        return made[0], made[1]

    def arguments(self, dtype: torch.dtype, num_hops: int) -> dict[str, Any]:
        """Return what the operations take, but for the keys."""
        rows = reference.join(self.seeds)
        return {
            "graph": self.typed.arrays(dtype),
            "timed": self.timed(dtype),
            "seeds": [torch.tensor([row[0] for row in own], dtype=dtype) for own in self.seeds],
            "times": torch.tensor([row[1] for row in rows], dtype=torch.int64),
            "fanouts": [torch.tensor(fanouts) for fanouts, _ in self.hops[:num_hops]],
            "windows": torch.tensor([row[2] for row in rows], dtype=torch.int64) if self.windowed else None,
        }

    def expected(self, steps: Sequence[tuple[Sequence[int], Draws]], method: str) -> list[reference_hops.TypedHop]:
        """Sample hop after hop, each from all rows found so far; every edge makes a row. Stops at many rows."""
        (indptr, indices, types), (first_ids, sources, destinations, order) = self.typed.graph, self.typed.kinds
        units = reference.weights_to_units(indptr, self.typed.weights) if self.weighted else None
        rows, hops = self.seeds, []
        for fanouts, key in steps:
            owners = reference.join([kind] * len(own) for kind, own in enumerate(rows))
            asked = [(first_ids[kind] + row[0], period(row)) for kind, own in enumerate(rows) for row in own]
            if isinstance(key, int):
                picked = reference.temporal_sample_neighbors(
                    (indptr, self.stamps), asked, fanouts, key, method, units, types
                )
            else:
                picked = reference.temporal_labor_sample_neighbors(
                    (indptr, indices, self.stamps), asked, fanouts, key, method == "replace", units, types
                )
            starts, positions = reference.group_by_type(picked, types, owners, destinations)
            after, local = [list(own) for own in rows], [list[int]() for _ in order]
            for kind in order:
                spans = zip(rows[destinations[kind]], pairwise(starts[kind]), strict=True)
                parents = [row for row, (low, high) in spans for _ in range(low, high)]
                for edge, (_, time, window) in zip(positions[kind], parents, strict=True):
                    own_time = ops.ALWAYS if self.edge_times is None else self.edge_times[edge]
                    own_time = time if own_time == ops.ALWAYS else own_time
                    local[kind].append(len(after[sources[kind]]))
                    after[sources[kind]].append((indices[edge] - first_ids[sources[kind]], own_time, window))
            hops.append(reference_hops.TypedHop(nodes_of(rows), nodes_of(after), starts, local, positions))
            rows = after
            if sum(map(len, rows)) > reference_hops.MANY_ROWS:
                break
        return hops

    def check(
        self, found: Sequence[ops.SampledHop], expected: list[reference_hops.TypedHop], dtype: torch.dtype
    ) -> None:
        """Compare the hops of an operation with those of the reference."""
        assert as_lists(found, self.typed) == expected
        assert all(part.dtype == dtype for hop in found for part in (*hop.columns, *hop.rows))


def period(row: Row) -> tuple[int | None, int]:
    """Return the first time inside of a row's window, and its end."""
    _, time, window = row
    return None if window is None else time - max(window, 1) + 1, time


def nodes_of(rows: Sequence[Sequence[Row]]) -> list[list[int]]:
    """Return the ids of rows."""
    return [[row[0] for row in own] for own in rows]


@st.composite
def problems_in_time(draw: st.DrawFn) -> TypedInTime:
    """Make a graph, times of which some are equal, seeds of which some may be equal, and hops."""
    typed = draw(typed_graphs())
    chance = random.Random(draw(st.integers(0, 2**32)))
    moments = Moments(draw, chance)
    sizes = [end - start for start, end in pairwise(typed.first_ids)]
    nodes = [draw(st.lists(st.integers(0, size - 1), max_size=4)) if size else [] for size in sizes]
    return TypedInTime(
        typed,
        moments.stamps(typed.indptr),
        [moments.time() for _ in typed.indices] if draw(st.booleans()) else None,
        [[(node, moments.time(), moments.window() if moments.windowed else None) for node in own] for own in nodes],
        draw(hops_of(typed)),
        moments.windowed,
        linked=draw(st.booleans()),
        weighted=draw(st.booleans()),
        replace=draw(st.booleans()),
        first_edges=draw(st.sampled_from([1, 1 << 22])),
    )
