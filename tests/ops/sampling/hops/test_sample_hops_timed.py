import re
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS
from tests.ops.hops import sample_one, sample_timed
from tests.ops.timed import TimedGraph, timed_graphs

MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")
HOPS = st.lists(st.tuples(FANOUTS.filter(lambda fanout: fanout < 50), KEYS), min_size=1, max_size=3)
METHODS = ["uniform", "uniform, replace", "latest", "labor", "labor, replace"]
COLUMNS = ops.TemporalGraph(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), torch.tensor([1, 2, 3]))
ONE = torch.tensor([1])


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
        seeds, times = rows, torch.cat([times, own])
        if len(seeds) > 3000:
            break
    return layers


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@given(st.sampled_from([1, 1 << 22]), timed_graphs(), HOPS, st.sampled_from([None, 0, 1, 700, 2**63 - 1]), st.data())
def test_all_hops_are_single_hops(
    dtype: torch.dtype,
    method: str,
    first_edges: int,
    graph: TimedGraph,
    hops: list[tuple[int, Any]],
    window: int | None,
    data: st.DataObject,
) -> None:
    columns = graph.columns(dtype, weighted=data.draw(st.booleans()) and method != "latest")._replace(earliest=None)
    if data.draw(st.booleans()):
        columns = columns._replace(edge_times=torch.arange(len(graph.indices)) % 9 - 4)
    if data.draw(st.booleans()):
        columns = graph.linked(columns)
    drawing: dict[str, Any] = {"method": method.partition(",")[0], "replace": "replace" in method}
    if drawing["method"] == "labor":
        drawing["switch_threshold"] = 2**62
    by_pair = [(fanout, (key, key ^ 5)) for fanout, key in hops]
    expected = hop_by_hop(columns, *graph.asked(dtype), by_pair, window, drawing)
    hops = hops[: len(expected)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "FIRST_EDGES", first_edges)
        fanouts, keys = (
            [hop[0] for hop in hops],
            [hop[1] for hop in by_pair] if drawing["method"] == "labor" else [hop[1] for hop in hops],
        )
        layers = sample_timed(columns, *graph.asked(dtype), fanouts, keys, window=window, **drawing)
    assert [[part.tolist() for part in layer] for layer in layers] == expected
    assert all(layer.rows.dtype == layer.indices.dtype == dtype for layer in layers)


@pytest.mark.parametrize("power", [0.2, 1, 5])
def test_long_columns_are_searched_right_however_their_times_are_spread(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    size, columns = 5000, 40
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


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seeds": torch.tensor([2])}, ValueError, "seeds must lie in 0 .. 1"),
        ({"seeds": ONE.int()}, TypeError, "seeds must be torch.int64"),
        ({"times": ONE.int()}, TypeError, "times must be torch.int64"),
        ({"times": torch.tensor([1, 2])}, ValueError, "times must have 1 values, one per seed, but has 2"),
        ({"fanouts": [-2]}, ValueError, "fanouts must be -1 (all neighbours) or more, but hold -2"),
        ({"fanouts": [], "keys": []}, ValueError, "fanouts is empty; give a number for each hop"),
        ({"window": -1}, ValueError, "windows must be 0 or more, but one is -1"),
        ({"keys": [0, 1]}, ValueError, "keys must hold 1 numbers, one per hop, but holds 2"),
        ({"keys": [(0, 0), (1, 1)], "method": "labor"}, ValueError, "keys must hold 1 pairs, one per hop, but holds 2"),
        ({"method": "latest", "replace": True}, ValueError, "the latest edges are taken once each"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], error: type[Exception], words: str) -> None:
    arguments: dict[str, Any] = {"columns": COLUMNS, "seeds": ONE, "times": ONE, "fanouts": [1], "keys": [0]} | options
    with pytest.raises(error, match=re.escape(words)):
        sample_timed(**arguments)
