from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.hops import sample_timed
from tests.ops.sampling.test_temporal_sample_neighbors_labor import KEYS
from tests.ops.timed import TimedGraph, timed_graphs

MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")


@pytest.mark.parametrize("first_edges", [1, 1 << 22])
@given(timed_graphs(), st.lists(st.tuples(st.sampled_from([-1, 0, 1, 3, 20]), KEYS), min_size=1, max_size=2), st.data())
def test_all_hops_are_single_hops(
    first_edges: int, graph: TimedGraph, hops: list[tuple[int, tuple[int, int]]], data: st.DataObject
) -> None:
    replace, weighted = data.draw(st.booleans()), data.draw(st.booleans())
    window = data.draw(st.sampled_from([None, 0, 1, 700, 2**63 - 1]))
    columns = graph.columns(torch.int64, weighted=weighted)._replace(earliest=None)
    if data.draw(st.booleans()):
        columns = graph.linked(columns)
    seeds, times = graph.asked(torch.int64)
    fanouts, keys = [hop[0] for hop in hops], [hop[1] for hop in hops]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "FIRST_EDGES", first_edges)
        layers = sample_timed(
            columns, seeds, times, fanouts, keys, "labor", window, switch_threshold=2**62, replace=replace
        )  # fmt: skip
    for layer, fanout, pair in zip(layers, fanouts, keys, strict=True):
        windows = None if window is None else torch.full_like(times, window)
        picks = ops.temporal_labor_sample_neighbors(
            columns, seeds, times, torch.tensor([fanout]), pair,
            switch_threshold=2**62, replace=replace, windows=windows,
        )  # fmt: skip
        rows = torch.cat([seeds, columns.indices[picks.positions]])
        expected = (seeds, rows, picks.offsets, torch.arange(len(seeds), len(rows)), picks.positions)
        assert [part.tolist() for part in layer] == [part.tolist() for part in expected]
        seeds, times = rows, torch.cat([times, torch.repeat_interleave(times, picks.offsets.diff())])


def test_hops_need_as_many_keys() -> None:
    columns = ops.TemporalGraph(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="keys must hold 1 pairs, one per hop, but holds 2"):
        sample_timed(columns, torch.tensor([0]), torch.tensor([1]), [1], [(0, 0), (1, 1)], "labor")
