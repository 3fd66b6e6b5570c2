"""With `visible="batch"`, seeds don't see the events of their mini-batch."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.events import check_same_everywhere, event_graph, event_items
from tests.kinds.refusals import check_refused
from tests.kinds.slow_events import last


def sampler(**options: Any) -> Any:
    return gf.ItemSampler(event_items(), every=20, shuffle=True).temporal_sample_neighbor(
        event_graph(), [3, 4], edge_timestamp_attr_name="time", strategy="latest", visible="batch", **options
    )


@pytest.mark.parametrize("window", [None, 30])
def test_a_seed_sees_what_is_before_the_mini_batch(window: int | None) -> None:
    hidden = 0
    for minibatch in sampler(pre_time_window=window):
        hop, first = minibatch.sampled_subgraphs[-1], int(minibatch.timestamp.min())
        starts = hop.sampled_csc.indptr.tolist()
        for number, (node, time) in enumerate(
            zip(minibatch.seeds.flatten().tolist(), minibatch.timestamp.repeat_interleave(2).tolist(), strict=True)
        ):
            since = None if window is None else time - window
            found = hop.original_edge_ids[starts[number] : starts[number + 1]].tolist()
            assert found == [edge for *_, edge in last(node, first, 4, since)]
            hidden += found != [edge for *_, edge in last(node, time, 4, since)]
    assert hidden > 50


def test_windows_of_items_and_of_the_stage_are_equal() -> None:
    items = event_items()
    given = gf.ItemSet((*items.members, 30 + 0 * items.members[1]), names=("seeds", "timestamp", "pre_time_window"))
    pipe: Any = gf.ItemSampler(given, every=20, shuffle=True).temporal_sample_neighbor(
        event_graph(), [3, 4], edge_timestamp_attr_name="time", strategy="latest", visible="batch"
    )
    for one, other in zip(pipe, sampler(pre_time_window=30), strict=True):
        assert one.edge_ids(0).equal(other.edge_ids(0))


def test_the_first_time_is_that_of_all_types() -> None:
    graph = gf.from_coo(
        {"a:to:b": ([0, 1], [0, 0]), "b:to:a": ([0, 1], [0, 0])},
        {"a": 2, "b": 2},
        edge_attributes={"time": {"a:to:b": torch.tensor([5, 15]), "b:to:a": torch.tensor([5, 15])}},
    )
    items = gf.HeteroItemSet({
        kind: gf.ItemSet(([0], [time]), names=("seeds", "timestamp")) for kind, time in (("a", 10), ("b", 20))
    })  # fmt: skip
    pipe = gf.ItemSampler(items, 2).temporal_sample_neighbor(
        graph, [-1], edge_timestamp_attr_name="time", visible="batch"
    )
    found = next(iter(pipe)).edge_ids(0)
    assert {name: own.tolist() for name, own in found.items()} == {"a:to:b": [0], "b:to:a": [0]}


@pytest.mark.slow
def test_it_is_the_same_everywhere() -> None:
    check_same_everywhere(sampler(hop_time="edge"))


def test_inclusive_times_are_refused() -> None:
    check_refused([
        (lambda: sampler(inclusive=True), ValueError, "visible='batch' hides the times of the mini-batch"),
        (lambda: sampler().changed(visible="all").__post_init__(), ValueError, "'seed' or 'batch', but is 'all'"),
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_windows_are_equal_for_times_of_any_dtype(dtype: torch.dtype) -> None:
    graph = gf.from_coo(([1, 2, 3], [0, 0, 0]), num_nodes=4, edge_attributes={"time": torch.tensor([10, 20, 30])})
    members = torch.tensor([0, 0]), torch.tensor([25, 40]).to(dtype), torch.tensor([5, 10]).to(dtype)
    items = gf.ItemSet(members, names=("seeds", "timestamp", "pre_time_window"))
    pipe = gf.ItemSampler(items, 2).temporal_sample_neighbor(
        graph, [5], edge_timestamp_attr_name="time", visible="batch"
    )
    assert next(iter(pipe)).sampled_subgraphs[0].sampled_csc.indices.numel() == 0
