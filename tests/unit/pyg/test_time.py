"""Temporal loaders: nothing later than a seed or before its window is sampled; and events in the order of time."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ItemSampler, ItemSet
from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, TemporalDataLoader, ToTemporalData
from graphfeed.pyg.data import import_pyg
from graphfeed.pyg.loaders.temporal_data_loader import gather_events
from tests.kinds.neighborhood import around, assert_is, events, heterogeneous, homogeneous, values_of

SEEDS = torch.tensor([7, 3, 50, 12])
TIMES = torch.tensor([30, 25, 49, 10])


def test_with_types_those_without_times_are_always_there() -> None:
    for window in [None, 12, 0]:
        data = heterogeneous()
        del data["item"].time
        loader = NeighborLoader(
            data, [-1, -1], ("user", torch.arange(6)), torch.full((6,), 20), time_attr="time", batch_size=6,
            time_window=window,
        )  # fmt: skip
        batch = next(iter(loader))
        known, first = data["user"].time.tolist(), 20 - (99 if window is None else window)
        found = around(
            data, {"user": list(range(6))}, 2, disjoint=True,
            allowed=lambda kind, edge, source, tree, first=first, known=known: (  # type: ignore[misc]
                kind[0] == "item" or first <= known[source] <= 20
            ),
        )  # fmt: skip
        for kind in ("user", "item"):
            own = zip(batch[kind].batch.tolist(), batch[kind].n_id.tolist(), strict=True)
            assert sorted(own) == sorted(zip(found.trees[kind], found.nodes[kind], strict=True))
        assert batch["user"].seed_time.tolist() == [20] * 6


def test_the_last_edges_may_be_those_of_a_mask() -> None:
    data = homogeneous()
    data.mask = torch.arange(200) % 3 > 0
    options: dict[str, Any] = {"batch_size": 4, "time_attr": "edge_time", "temporal_strategy": "last"}
    (batch,) = NeighborLoader(data, [2], SEEDS, TIMES, weight_attr="mask", **options)
    for tree, (seed, time) in enumerate(zip(SEEDS.tolist(), TIMES.tolist(), strict=True)):
        there = (data.edge_index[1] == seed) & (data.edge_time <= time) & data.mask
        expected = sorted(data.edge_time[there].tolist())[-2:]
        own = batch.e_id[batch.batch[batch.edge_index[1]] == tree]
        assert sorted(data.edge_time[own].tolist()) == expected
        assert data.mask[own].all()
    with pytest.raises(ValueError, match="whatever its weight, but 'weight' has weights of"):
        NeighborLoader(data, [2], SEEDS, TIMES, weight_attr="weight", **options)


def test_seeds_of_a_type_without_times_may_be_given_some() -> None:
    data = heterogeneous()
    del data["item"].time
    batch = next(iter(NeighborLoader(data, [-1], "item", torch.full((25,), 99), time_attr="time", batch_size=25)))
    assert batch["user", "likes", "item"].e_id.sort().values.tolist() == list(range(120))


def test_times_may_be_given_for_some_types() -> None:
    data = heterogeneous()
    del data["item"].time
    times: Any = {"item": torch.tensor([7, 8])}
    (batch,) = NeighborLoader(data, [0], {"user": None, "item": [3, 4]}, times, time_attr="time", batch_size=42)
    assert batch["item"].seed_time.tolist() == [7, 8]
    assert torch.equal(batch["user"].seed_time, data["user"].time)


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


def test_links_have_windows_too() -> None:
    for mode in [None, "binary", "triplet"]:
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


def test_windows_with_types() -> None:
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


def test_batches_equal_those_of_pyg() -> None:
    for drop_last in [False, True]:
        data = events()
        del data.scale  # PyG calls len() for each attribute
        peer = import_pyg("torch_geometric.loader", "tests")
        ours = TemporalDataLoader(data, batch_size=7, drop_last=drop_last)
        theirs = list(peer.TemporalDataLoader(data, batch_size=7, drop_last=drop_last))
        assert len(ours) == len(theirs) == (7 if drop_last else 8)
        for own, other in zip(ours, theirs, strict=True):
            assert type(own) is type(other)
            assert list(own.keys()) == list(other.keys())
            assert values_of(own) == values_of(other)


def test_what_does_not_belong_to_events_stays() -> None:
    assert next(iter(TemporalDataLoader(events(), batch_size=7))).scale == 2


def test_changing_a_batch_leaves_the_data_alone() -> None:
    data = events()
    for batch in TemporalDataLoader(data, 50):
        batch.t.zero_()
    assert torch.equal(data.t, events().t)


def test_negatives_are_uniform_between_the_ends_of_the_destinations() -> None:
    data = events()
    drawn = torch.cat([batch.neg_dst for batch in TemporalDataLoader(data, 25, neg_sampling_ratio=100.0, seed=1)])
    assert (len(drawn), drawn.dtype) == (5000, torch.int32)
    counts = drawn.bincount()[20:]
    assert int(counts.sum()) == 5000
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # the quantile 0.999 of 9 degrees of freedom
    (first, *_) = TemporalDataLoader(data, 5, neg_sampling_ratio=0.5)
    assert len(first.neg_dst) == 2
    assert first.n_id.tolist() == sorted({*first.src.tolist(), *first.dst.tolist(), *first.neg_dst.tolist()})


def test_events_are_filled_into_the_template() -> None:
    items = ItemSet((torch.tensor([4, 2, 4]), torch.tensor([7, 7, 5]), torch.arange(3)), names=("src", "dst", "t"))
    template = import_pyg("torch_geometric.data", "tests").TemporalData(name="events")
    pipe = ToTemporalData(ItemSampler(items, 2, minibatcher=gather_events), template)
    first: Any
    second: Any
    first, second = pipe
    assert (first.src.tolist(), first.t.tolist(), first.n_id.tolist(), first.name) == (
        [4, 2],
        [0, 1],
        [2, 4, 7],
        "events",
    )
    assert (second.dst.tolist(), second.n_id.tolist()) == ([5], [4, 5])
    assert template.to_dict() == {"name": "events"}
