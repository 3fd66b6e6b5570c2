"""All hops in time: single hops one after the other, on each device, and by type those of the reference."""

from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests.ops.devices import Cpu, Device, Put, results
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, put_columns
from tests.ops.hops import PlainHop, sample_one, sample_timed, sample_typed_timed
from tests.ops.timed import timed_graphs
from tests.ops.typed import HOPS as TYPED_HOPS
from tests.ops.typed import SEEDS, SHARES, draws_of, random_graph
from tests.ops.typed_timed import TypedInTime, problems_in_time

MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")


HOPS = st.lists(st.tuples(FANOUTS.filter(lambda fanout: fanout < 50), KEYS), min_size=1, max_size=3)


def hop_by_hop(
    columns: ops.TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    hops: Any,
    window: int | None,
    drawing: dict[str, Any],
) -> list[list[list[int]]]:
    """Make the layers of the op that does one hop: every edge makes a row."""
    layers = []
    for fanout, key in hops:
        windows = None if window is None else torch.full_like(times, window)
        picks = sample_one(columns, seeds, torch.tensor([fanout]), *key, times=times, windows=windows, **drawing)
        rows = torch.cat([seeds, columns.indices[picks.positions]])
        places = torch.arange(len(seeds), len(rows))
        layers.append([part.tolist() for part in (seeds, rows, picks.offsets, places, picks.positions)])
        inherited = torch.repeat_interleave(times, picks.offsets.diff())
        own = inherited if columns.edge_times is None else columns.edge_times[picks.positions]
        own = torch.where(own == ops.ALWAYS, inherited, own)
        seeds, times = rows, torch.cat([times, own])
        if len(seeds) > 3000:
            break
    return layers


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("method", ["uniform", "latest", "labor"])
@given(HOPS, st.sampled_from([None, 0, 1, 700, 2**63 - 1]), st.data())
def test_all_hops_are_single_hops(
    device: Device,
    dtype: torch.dtype,
    method: str,
    hops: list[tuple[int, Any]],
    window: int | None,
    data: st.DataObject,
) -> None:
    graph = data.draw(timed_graphs(most=700 if isinstance(device, Cpu) else 33))
    columns = graph.columns(dtype, weighted=data.draw(st.booleans()) and method != "latest")
    if isinstance(device, Cpu):
        columns = columns._replace(earliest=None)
    if data.draw(st.booleans()):
        edge_times = torch.arange(len(graph.indices)) % 9 - 4
        columns = columns._replace(edge_times=torch.where(edge_times == -4, ops.ALWAYS, edge_times))
    if data.draw(st.booleans()):
        columns = graph.linked(columns)
    drawing: dict[str, Any] = {
        "method": method,
        "replace": data.draw(st.booleans()) and method != "latest",
        "switch_threshold": 2**62,
    }
    pairs = [(fanout, (key, key ^ 5) if method == "labor" else (key,)) for fanout, key in hops]
    expected = hop_by_hop(columns, *graph.asked(dtype), pairs, window, drawing)
    fanouts = [fanout for fanout, _ in hops[: len(expected)]]
    keys = [own if method == "labor" else own[0] for _, own in pairs[: len(expected)]]

    def sample(put: Put) -> list[PlainHop]:
        seeds, times = map(put, graph.asked(dtype))
        return sample_timed(put_columns(put, columns), seeds, times, fanouts, keys, window=window, **drawing)

    with patch.object(MODULE, "FIRST_EDGES", data.draw(st.sampled_from([1, 1 << 22]))):
        for found in results(device, sample):
            assert [[part.tolist() for part in layer] for layer in found] == expected
            assert all(layer.rows.dtype == layer.indices.dtype == dtype for layer in found)


@pytest.mark.parametrize("power", [0.2, 1, 5])
def test_long_columns_are_searched_right_however_their_times_are_spread(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    size, columns = 5000, 20
    moments = (torch.rand(columns * size, generator=generator).double() ** power * 1e6).long()
    indptr = torch.arange(columns + 1) * size
    found = ops.order_by_time(indptr, moments)
    graph = ops.TemporalGraph(indptr, moments % columns, found.times, found.order)
    seeds = torch.arange(columns).repeat(20)
    times = torch.randint(-10, 1_000_010, (len(seeds),), generator=generator)
    (layer,) = sample_timed(graph, seeds, times, [-1], [0], window=200_000)
    inside = (moments.reshape(columns, size)[seeds] < times[:, None]) & (
        moments.reshape(columns, size)[seeds] > times[:, None] - 200_000
    )
    assert layer.indptr.diff().tolist() == inside.sum(1).tolist()


MOMENTS = 20_000 - torch.arange(sum(map(len, SEEDS)))


@pytest.mark.parametrize("method", ["uniform", "labor", "latest"])
@given(st.sampled_from(ID_DTYPES), problems_in_time(), SHARES)
def test_by_type_equal_to_the_reference(method: Method, dtype: torch.dtype, problem: TypedInTime, share: int) -> None:
    if method == "latest":
        problem = replace(problem, replace=False, weighted=False)
    keys, steps = draws_of(method, problem.hops, share)
    expected = problem.expected(steps, "replace" if problem.replace else "latest" if method == "latest" else "")
    arguments, drawing = problem.arguments(dtype, len(expected)), ops.Drawing(method, problem.replace, share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "FIRST_EDGES", problem.first_edges)
        found = sample_typed_timed(**arguments, keys=keys[: len(expected)], **drawing._asdict() | {"rows": "edge"})
    problem.check(found, expected, dtype)


def in_time(graph: ops.HopGraph) -> ops.TemporalGraph:
    """Return the edges of a graph by their time, which is their position."""
    found = ops.order_by_time(graph.indptr, torch.arange(graph.indices.numel()))
    assert found.order is None
    return ops.TemporalGraph(graph.indptr, graph.indices, found.times)


def right() -> dict[str, Any]:
    """Return the arguments of a call."""
    graph = random_graph()
    columns = in_time(graph)
    hops = {"seeds": SEEDS, "times": MOMENTS, "fanouts": TYPED_HOPS, "keys": [1, 2]}
    return {"graph": graph, "timed": (columns, columns), **hops}
