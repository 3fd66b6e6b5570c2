"""All hops of a mini-batch are those of the slow reference: in any way of sampling, of any graph."""

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.graph_kinds import KINDS
from tests.kinds.random_graphs import LAST, Moments, RandomGraph, random_graphs

FANOUTS = st.sampled_from([1, 2, 3]) | st.sampled_from([-1, 0, 1, 2, 3, 5, 20, 47, 48, 49, 60, 200])
"""Small ones are more frequent, as the reference samples no hop after one of many rows."""
FEW = st.sampled_from([-1, 0, 1, 2, 5])
"""The reference needs seconds for many picks by LABOR with replacement."""
KEYS = st.integers(0, 2**64 - 1)
SHARES = st.sampled_from([0.0, 2.0**-64, 0.25, 0.5, 1.0])
LEAST: dict[str, Any] = {
    "first_edges": 1, "first_table": 1, "bounded_edges": 9, "node_map_bytes": 0, "index_degree": 8, "index_share": 1,
}  # fmt: skip
"""Sizes with which arrays and hash tables grow, and LABOR uses the index of large columns."""
WAYS = ["hop by hop", "in a file, by page"]
"""The kinds of graphs that sample in another way than that in memory."""
Seed = tuple[int, int, int]
"""A node, its time and its window."""


@dataclass(frozen=True)
class Problem:
    """A graph, a request without its arrays, and the seeds and the keys of a mini-batch."""

    graph: RandomGraph
    options: dict[str, Any]
    """The options of `SamplingRequest`, but for fan-outs and times."""
    seeds: Sequence[Sequence[Seed]]
    """By node type."""
    hops: Sequence[tuple[list[int], tuple[int, int]]]
    """The fan-outs and keys of each hop, that of the seeds first."""
    share: float = 0.0
    query: dict[str, Any] | None = None
    """The options of `TemporalQuery`; the window is a number, None, or "seeds" for one per seed."""

    @property
    def in_time(self) -> bool:
        return self.query is not None

    def expected(self) -> list[reference.SampledHop]:
        """Return the hops of the reference."""
        query, options = self.query or {}, self.options
        arrays = self.graph.in_lists(
            options["probs_name"], query.get("node_timestamp_attr_name"), query.get("edge_timestamp_attr_name")
        )
        window, trees = query.get("pre_time_window"), options.get("disjoint")
        starts = reference.running_sum(map(len, self.seeds))
        seeds = [
            [
                reference.Row(
                    node, (start + place) * bool(trees), time if self.in_time else None,
                    own_window if window == "seeds" else window,
                )
                for place, (node, time, own_window) in enumerate(own)
            ]
            for start, own in zip(starts, self.seeds, strict=False)
        ]  # fmt: skip
        merged = options.get("deduplicate", True) and not self.in_time
        how = reference.How(
            options["strategy"], options["replace"], options.get("only_new", False),
            "tree" if trees else "node" if merged else "edge",
            self.graph.edge_times if query.get("hop_time") == "edge" else None, query.get("inclusive", False),
        )  # fmt: skip
        draws = [(keys if self.share < 1 else (keys[1],) * 2, int(self.share % 1 * 2**64)) for _, keys in self.hops]
        steps = [(fanouts, own) for (fanouts, _), own in zip(self.hops, draws, strict=True)]
        return reference.sample_hops(arrays, self.graph.kinds, seeds, steps, how)

    def sample(self, graph: gf.SamplingGraph, ids: torch.dtype, num_hops: int) -> Any:
        """Return the first hops of the mini-batch."""
        hops, query = self.hops[:num_hops], None
        parts = [torch.tensor(own, dtype=torch.int64).reshape(-1, 3).T for own in self.seeds]
        nodes, times, windows = (
            self.by_type([part[field].to(dtype) for part in parts])
            for field, dtype in enumerate((ids, torch.int64, torch.int64))
        )
        if self.query is not None:
            window = self.query["pre_time_window"]
            query = gf.TemporalQuery(**{**self.query, "pre_time_window": None if window == "seeds" else window})
        fanouts = [torch.tensor(own) for own, _ in reversed(hops)]
        request = gf.SamplingRequest(fanouts, **self.options, temporal=query)
        graph.validate(request)
        is_labor = request.strategy == "labor"
        keys: Any = [own if is_labor else own[0] for _, own in hops]
        seeds = gf.Seeds(nodes)
        if self.query is not None:
            seeds = gf.Seeds(nodes, times, windows if self.query["pre_time_window"] == "seeds" else None)
        return graph.sample_hops(seeds, request, keys, seed2_contribution=self.share if is_labor else 0.0)

    def by_type(self, parts: list[torch.Tensor]) -> Any:
        """Return tensors by node type; one tensor without types."""
        return dict(zip(self.graph.node_types, parts, strict=True)) if self.graph.typed else parts[0]


def in_lists(layers: Sequence[gf.SampledSubgraph], graph: RandomGraph) -> list[reference.SampledHop]:
    """Return sampled hops in the form of the reference."""
    found = []
    for layer in reversed(layers):
        nodes = [layer.original_column_node_ids, layer.original_row_node_ids]
        edges: list[Any] = [layer.sampled_csc, layer.original_edge_ids]
        columns, rows = ([own[kind] for kind in graph.node_types] if graph.typed else [own] for own in nodes)
        cscs, ids = ([own[kind] for kind in graph.edge_types] if graph.typed else [own] for own in edges)
        parts = columns, rows, [own.indptr for own in cscs], [own.indices for own in cscs], ids
        found.append(reference.SampledHop(*([own.tolist() for own in part] for part in parts)))
        dtypes = [{own.dtype for own in part} for part in parts]
        assert dtypes[0] == dtypes[1] == dtypes[3]
        assert dtypes[4] == {torch.int64}
    return found


def check(problem: Problem, ids: torch.dtype, starts: torch.dtype) -> None:
    """Compare the hops of each way of sampling with the reference."""
    expected, graph = problem.expected(), problem.graph.make(ids, starts)
    layers = [problem.sample(graph, ids, len(expected))]
    for way in WAYS:
        layers += KINDS[way](graph, lambda own: problem.sample(own, ids, len(expected)))
    for found in layers:
        assert in_lists(found, problem.graph) == expected
        csc: Any = found[0].sampled_csc
        own = next(iter(csc.values())) if problem.graph.typed else csc
        assert (own.indptr.dtype, own.indices.dtype) == (starts, ids)


@st.composite
def problems(draw: st.DrawFn, strategy: str, in_time: bool) -> Problem:
    """Make a graph, a request with any options that go together, and seeds of which some may be equal."""
    graph = draw(random_graphs())
    chance = random.Random(draw(st.integers(0, 2**32)))
    moments, query = Moments(graph.spread, chance), None
    options: dict[str, Any] = {"strategy": strategy, "replace": strategy != "latest" and draw(st.booleans())}
    options["probs_name"] = draw(st.sampled_from([None, "mask", "mask" if strategy == "latest" else "w"]))
    rows: list[dict[str, bool]] = [{}, {}, {"only_new": True, "disjoint": True}]
    options |= draw(st.sampled_from(rows if in_time else [*rows[1:], {"only_new": True}, {"deduplicate": False}]))
    if in_time:
        owners = [("born", "time"), (None, "time")] * 3 + [("born", None), (None, None)]
        nodes, edges = draw(st.sampled_from(owners))
        windows: Any = draw(st.sampled_from([None, "seeds", "seeds", "seeds", 0, 1, 3, moments.spread, LAST]))
        query = {"node_timestamp_attr_name": nodes, "edge_timestamp_attr_name": edges, "pre_time_window": windows}
        query["inclusive"] = draw(st.booleans())
        query["hop_time"] = "edge" if edges and "disjoint" not in options and draw(st.booleans()) else "seed"
    seeds = [
        [(node, moments.time(), moments.window()) for node in draw(st.lists(st.integers(0, size - 1), max_size=5))]
        if size else [] for size in graph.sizes
    ]  # fmt: skip
    hops, fanouts = [], FEW if strategy == "labor" and options["replace"] else FANOUTS
    for _ in range(draw(st.sampled_from([1, 2, 2, 3, 3]))):
        count = draw(st.sampled_from([1, len(graph.ends)]))
        hops.append((draw(st.lists(fanouts, min_size=count, max_size=count)), draw(st.tuples(KEYS, KEYS))))
    return Problem(graph, options, seeds, hops, draw(SHARES) if strategy == "labor" else 0.0, query)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("strategy", "in_time"),
    [("uniform", False), ("labor", False), ("uniform", True), ("labor", True), ("latest", True)],
)
@settings(max_examples=max(60, settings().max_examples))
@given(st.data())
def test_all_hops_are_those_of_the_reference(
    dtype: torch.dtype, strategy: str, in_time: bool, data: st.DataObject
) -> None:
    problem = data.draw(problems(strategy, in_time))
    starts = data.draw(st.sampled_from([torch.int32, torch.int64]))
    with limits(**LEAST) if data.draw(st.booleans()) else nullcontext():
        check(problem, dtype, starts)


@pytest.mark.parametrize("power", [0.2, 1, 5])
def test_long_columns_are_searched_right_however_their_times_are_spread(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    size, columns = 5000, 20
    moments = (torch.rand(columns * size, generator=generator).double() ** power * 1e6).long()
    ends = moments % columns, torch.arange(columns).repeat_interleave(size)
    graph = gf.from_coo(ends, columns, edge_attributes={"time": moments})
    seeds, times = torch.arange(columns).repeat(20), torch.randint(-10, 1_000_010, (20 * columns,), generator=generator)
    hop = graph.temporal_sample_neighbors(
        seeds, times, torch.tensor([-1]), False, torch.full_like(times, 200_000), edge_timestamp_attr_name="time"
    )
    own = moments.reshape(columns, size)[seeds]
    inside = (own < times[:, None]) & (own > times[:, None] - 200_000)
    assert isinstance(hop.sampled_csc, gf.CSCFormatBase)
    assert hop.sampled_csc.indptr.diff().tolist() == inside.sum(1).tolist()


def test_an_edge_that_always_exists_keeps_the_time_of_its_column() -> None:
    graph = gf.from_coo([[1, 0, 2], [0, 1, 1]], 3, edge_attributes={"time": torch.tensor([-LAST - 1, 1, 3])})
    query = gf.TemporalQuery(None, "time", None, "edge")
    request = gf.SamplingRequest([torch.tensor([-1])] * 2, temporal=query)
    layers = graph.sample_hops(torch.tensor([0]), request, [1, 2], seeds_timestamp=torch.tensor([5]))
    assert [layer.original_edge_ids.tolist() for layer in layers] == [[0, 1, 2], [0]]
