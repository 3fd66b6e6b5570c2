"""A window of time for each seed, through the loaders and the stages."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import LinkNeighborLoader, NeighborLoader
from tests.pyg.neighborhood import around, assert_is, heterogeneous, homogeneous

SEEDS = torch.tensor([7, 3, 50, 12])
TIMES = torch.tensor([30, 25, 49, 10])
WINDOWS = torch.tensor([5, 100, 0, 20])


@pytest.mark.parametrize("attribute", ["time", "edge_time"])
@pytest.mark.parametrize("window", [WINDOWS, 12], ids=["each", "all"])
def test_what_is_sampled_lies_between_both_bounds(attribute: str, window: Any) -> None:
    data = homogeneous()
    of_what, windows = data[attribute].tolist(), torch.as_tensor(window).expand(4).tolist()

    def allowed(kind: Any, edge: int, source: int, tree: int) -> bool:
        time = int(of_what[source if attribute == "time" else edge])
        return int(TIMES[tree]) - int(windows[tree]) <= time <= int(TIMES[tree])

    options: dict[str, Any] = {"batch_size": 4, "time_attr": attribute, "time_window": window}
    batch = next(iter(NeighborLoader(data, [-1, -1], SEEDS, TIMES, **options)))
    found = around(
        data, {"": SEEDS.tolist()}, 2, disjoint=True, allowed=allowed,
        order=lambda edge, source: of_what[source if attribute == "time" else edge],
    )  # fmt: skip
    assert_is(batch, found, disjoint=True)
    assert len(batch.e_id) > 0


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_links_have_windows_too(mode: Any) -> None:
    data = homogeneous()
    count = data.edge_index.shape[1]
    times, windows = torch.arange(count) % 50, torch.arange(count) % 7
    options: dict[str, Any] = {"edge_label_time": times, "time_attr": "edge_time", "time_window": windows}
    loader = LinkNeighborLoader(data, [-1, -1], batch_size=count, neg_sampling=mode, **options)
    (batch,) = loader
    own = batch.batch[batch.edge_index[0]]
    assert (batch.edge_time <= times[own]).all()
    assert (batch.edge_time >= times[own] - windows[own]).all()
    assert len(batch.e_id) > 100


def test_with_types() -> None:
    data = heterogeneous()
    options: dict[str, Any] = {"time_attr": "time", "time_window": {"user": torch.arange(40) % 11, "item": 9}}
    (batch, *_) = NeighborLoader(data, [3, 3], {"user": None, "item": None}, batch_size=20, **options)
    window = options["time_window"]
    limits = torch.cat([data["user"].time[batch["user"].n_id[:20]]])
    lowest = limits - window["user"][batch["user"].n_id[:20]]
    store = batch["user"]
    assert (store.time[20:] <= limits[store.batch[20:]]).all()
    assert (store.time[20:] >= lowest[store.batch[20:]]).all()


def test_an_item_of_a_pipeline_is_the_window_of_each_seed() -> None:
    data = homogeneous()
    graph = gf.from_coo(data.edge_index, 60, edge_attributes={"time": data.edge_time})
    items = gf.ItemSet((SEEDS, TIMES, WINDOWS), names=("seeds", "timestamp", "pre_time_window"))
    pipe = gf.ItemSampler(items, batch_size=4)
    each = next(iter(pipe.temporal_sample_neighbor(graph, [-1], edge_timestamp_attr_name="time")))
    hop = each.sampled_subgraphs[0]
    assert sum(hop.sampled_csc.indptr.diff().tolist()) > 0
    for place, (time, window) in enumerate(zip(TIMES.tolist(), WINDOWS.tolist(), strict=True)):
        low, high = hop.sampled_csc.indptr[place : place + 2].tolist()
        there = data.edge_time[data.edge_index[1] == SEEDS[place]]
        expected = there[(there > time - window) & (there < time)]
        assert sorted(data.edge_time[hop.original_edge_ids[low:high]].tolist()) == sorted(expected.tolist())
    pairs = gf.ItemSet((torch.stack([SEEDS, SEEDS.flip(0)], 1), TIMES, WINDOWS), names=items.names)
    batch = next(iter(gf.ItemSampler(pairs, 4).temporal_sample_neighbor(graph, [-1], edge_timestamp_attr_name="time")))
    inner = batch.sampled_subgraphs[0]
    ends = torch.repeat_interleave(torch.arange(8), inner.sampled_csc.indptr.diff()) // 2
    of_edges = data.edge_time[inner.original_edge_ids]
    assert ((of_edges < TIMES[ends]) & (of_edges > TIMES[ends] - WINDOWS[ends])).all()


def test_windows_that_mean_nothing_are_refused() -> None:
    data = homogeneous()
    cases: Any = (
        ({}, ValueError, "time_window needs time_attr"),
        ({"time_attr": "time", "time_window": -1}, ValueError, "time_window must be 0 or more, but is -1"),
        ({"time_attr": "time", "time_window": 1.5}, TypeError, "time_window must be whole numbers"),
        ({"time_attr": "time", "time_window": WINDOWS[:2]}, ValueError, "time_window must have 4 values"),
    )
    for options, kind, text in cases:
        with pytest.raises(kind, match=text):
            NeighborLoader(data, [2], SEEDS, **{"time_window": 3, **options})
    with pytest.raises(TypeError, match="NeighborLoader has no argument 'exclude_seed_edges'"):
        NeighborLoader(data, [2], SEEDS, exclude_seed_edges=True)
    typed = heterogeneous()
    with pytest.raises(ValueError, match="time_window has no window for 'item'"):
        NeighborLoader(typed, [2], {"user": None, "item": None}, time_attr="time", time_window={"user": 3})
    del typed["item"].time
    with pytest.raises(ValueError, match="needs times of all types, but 'item' has no 'time'"):
        NeighborLoader(typed, [2], "user", time_attr="time", time_window=3)
