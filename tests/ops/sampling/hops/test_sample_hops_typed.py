import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.memory import MappedReads, buffers
from graphfeed.ops.sampling.hops.hop_arrays import Shape
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests import reference
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS

FIRST_EDGES = import_module("graphfeed.ops.sampling.hops.sample_hops"), "FIRST_EDGES"
MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")
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


def as_lists(hops: Sequence[ops.TypedHop] | None, typed: Typed) -> list[reference.TypedHop]:
    """Return the hops as the reference has them: every edge type is there."""
    assert hops is not None
    found = []
    for hop in hops:
        columns, rows = ([part.tolist() for part in parts] for parts in (hop.columns, hop.rows))
        edges = reference.TypedHop(columns, rows, [], [], [])
        for kind, (_, end) in enumerate(typed.ends):
            own = hop.edges.get(kind)
            edges.indptr.append([0] * (len(columns[end]) + 1) if own is None else own.indptr.tolist())
            edges.indices.append([] if own is None else own.indices.tolist())
            edges.positions.append([] if own is None else hop.positions[own.own].tolist())
            assert own is None or len(own.indices) > 0 or not own.indices.is_cpu
        assert len(hop.positions) == sum(map(len, edges.positions))
        found.append(edges)
    return found


SHARES = st.sampled_from([0, 1 << 62, 3 << 62])


def draws_of(method: Method, hops: Hops, share: int) -> tuple[list[Any], list[tuple[list[int], Any]]]:
    """Return the keys of an operation, and the fan-outs and draws that the reference takes."""
    if method != "labor":
        return [key for _, key in hops], list(hops)
    return [(key, key ^ 5) for _, key in hops], [(fanouts, ((key, key ^ 5), share)) for fanouts, key in hops]


@pytest.mark.parametrize("method", ["uniform", "labor"])
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(
    problems(), st.booleans(), st.booleans(), SHARES, st.sampled_from([(1, False), (1 << 22, False), (1 << 22, True)])
)
def test_equal_to_the_reference(
    method: Method,
    dtype: torch.dtype,
    problem: tuple[Typed, list[list[int]], Hops],
    replace: bool,
    weighted: bool,
    share: int,
    how: tuple[int, bool],
) -> None:
    typed, seeds, hops = problem
    keys, steps = draws_of(method, hops, share)
    first_edges, by_page = how
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*FIRST_EDGES, first_edges)
        found = ops.typed_sample_hops(
            typed.arrays(dtype, weighted=weighted)._replace(reads=MappedReads() if by_page else None),
            [torch.tensor(part, dtype=dtype) for part in seeds],
            [torch.tensor(fanouts) for fanouts, _ in hops],
            keys,
            ops.Drawing(method, replace, share),
        )
    units = reference.weights_to_units(typed.indptr, typed.weights) if weighted else None
    assert as_lists(found, typed) == reference.typed_sample_hops(typed.graph, typed.kinds, seeds, steps, replace, units)
    for hop in found or []:
        assert hop.positions.dtype == torch.int64
        assert all(part.dtype == dtype for part in (*hop.columns, *hop.rows))
        assert all(own.indptr.dtype == own.indices.dtype == dtype for own in hop.edges.values())


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
LABOR = {"drawing": ops.Drawing("labor")}


def test_columns_that_share_neighbours_choose_the_same_ones_by_labor() -> None:
    uniform = ops.typed_sample_hops(random_graph(), SEEDS, HOPS[:1], [1]) or []
    labor = ops.typed_sample_hops(random_graph(), SEEDS, HOPS[:1], [(1, 1)], ops.Drawing("labor")) or []
    assert sum(map(len, labor[0].rows)) < sum(map(len, uniform[0].rows))


def test_many_node_types_have_no_more_room_in_time_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FIRST_ROWS", 1000)
    none = torch.empty(0, dtype=torch.int64)
    for kinds, room in ((2, 401), (40, 25)):
        shape = Shape(range(kinds + 1), range(kinds), [0] * kinds, range(kinds))
        rows = MODULE.first_room(ops.HopGraph(torch.zeros(2), none), 1, [400], shape, False).rows
        assert rows == [room] * kinds


def test_maps_are_clean_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FIRST_EDGES, 1)
    for _ in range(2):
        ops.typed_sample_hops(random_graph(601), SEEDS, HOPS, [1, 2])
        assert (buffers.NODE_MAPS.idle[601][-1] == -1).all()


def test_none_where_the_map_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=4 * 600 - 1))
    assert ops.typed_sample_hops(random_graph(), SEEDS, HOPS, [1, 2]) is None


def test_picks_that_int32_cannot_count_are_refused_before_there_is_room_for_them() -> None:
    graph, fanout = random_graph(), torch.tensor([2**31 - 1])
    graph = graph._replace(indptr=graph.indptr.int(), indices=graph.indices.int())
    seeds = [torch.tensor(part, dtype=torch.int32) for part in ([0, 1], [], [])]
    with pytest.raises(ValueError, match=r"hop 0 would have \d+ edges, too many for int32; take smaller fanouts"):
        ops.typed_sample_hops(graph, seeds, [fanout], [1], ops.Drawing("uniform", replace=True))


def text(hops: Any) -> str:
    return str([[own.tolist() for own in (*hop.columns, *hop.rows, hop.positions)] for hop in hops])


def test_results_stay_as_they_are_while_others_are_made() -> None:
    graph = random_graph()
    hops = ops.typed_sample_hops(graph, SEEDS, HOPS, [1, 2])
    expected = text(hops)
    for key in range(10):
        ops.typed_sample_hops(graph, SEEDS, HOPS, [key, key])
    assert text(hops) == expected
    assert expected != text(ops.typed_sample_hops(graph, SEEDS, HOPS, [1, 3]))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"seeds": SEEDS[:2]}, ValueError, "seeds must hold 3 tensors, one per node type, but holds 2"),
        ({"seeds": [*SEEDS[:2], torch.tensor([250])]}, ValueError, r"seeds\[2\] must lie in 0 \.\. 249, but holds 250"),
        ({"seeds": [*SEEDS[:2], torch.tensor([1.0])]}, TypeError, r"seeds\[2\] must be torch.int64, but is"),
        ({"fanouts": [HOPS[0], HOPS[1][:2]]}, ValueError, "must hold 1 number, or 5 .one per edge type., but holds 2"),
        ({"fanouts": [HOPS[0], torch.tensor([-2])]}, ValueError, "fanouts must be -1 .* or more, but holds -2"),
        ({"fanouts": []}, ValueError, "fanouts is empty"),
        ({"keys": [1]}, ValueError, "keys must hold 2 numbers, one per hop, but holds 1"),
        ({"keys": [(1, 2)], **LABOR}, ValueError, "keys must hold 2 pairs, one per hop, but holds 1"),
        ({"keys": [(1, 2), (3,)], **LABOR}, ValueError, "each hop needs two keys"),
        ({"order": torch.tensor([0, 1, 2, 3, 3])}, ValueError, "order must hold each of the 5 edge types once"),
        ({"first_ids": torch.tensor([0, 300, 200, 600])}, ValueError, "first_ids must not fall"),
        ({"ends": torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 1]])}, ValueError, "does not join its two nodes"),
        ({"ends": torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 3]])}, ValueError, "ends must lie in 0 .. 2"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    right: dict[str, Any] = {"graph": random_graph(), "seeds": SEEDS, "fanouts": HOPS, "keys": [1, 2]}
    ops.typed_sample_hops(**right)
    own = {name: value for name, value in changed.items() if name in right["graph"]._fields}
    other = {name: value for name, value in changed.items() if name not in own}
    with pytest.raises(error, match=message):
        ops.typed_sample_hops(**{**right, "graph": right["graph"]._replace(**own), **other})


@pytest.mark.parametrize("method", ["uniform", "labor"])
def test_picks_of_a_single_edge_type_ascend_as_those_of_many_do(method: Method) -> None:
    numbers = torch.tensor([0, 1]), torch.tensor([[0, 0]]), torch.tensor([0])
    indices = torch.zeros(40, dtype=torch.int64)
    graph = ops.HopGraph(torch.tensor([0, 40]), indices, indices.to(torch.uint8), *numbers)
    for key in range(20):
        keys = [(key, key + 1)] if method == "labor" else [key]
        (hop,) = ops.typed_sample_hops(graph, [indices[:1]], [torch.tensor([5])], keys, ops.Drawing(method)) or []
        assert hop.positions.tolist() == sorted(hop.positions.tolist())
