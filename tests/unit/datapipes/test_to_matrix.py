"""Neighbours as matrices."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.events import NUM_EVENTS, NUM_NODES, check_same_everywhere, event_graph, event_items
from tests.kinds.refusals import check_refused
from tests.kinds.slow_events import Row, last, seen

ANY: Any = gf
GRAPH = event_graph()
NODE_ROWS, EDGE_ROWS = torch.arange(NUM_NODES) * 1.5 + 7, torch.arange(2.0 * NUM_EVENTS)[:, None] * torch.ones(2) + 1
STORE = gf.BasicFeatureStore(
    {
        ("node", None, "x"): gf.TorchBasedFeature(NODE_ROWS[:, None]),
        ("edge", None, "message"): gf.TorchBasedFeature(EDGE_ROWS),
    }
)
PADDED = (-1, 0, -1)


def sampled(fanouts: Any = (4, 3), **options: Any) -> gf.Datapipe:
    options = {"strategy": "latest", "hop_time": "edge"} | options
    pipe = gf.ItemSampler(event_items(), batch_size=64, shuffle=True).sample_uniform_negative(GRAPH, 1)
    return pipe.temporal_sample_neighbor(GRAPH, fanouts, edge_timestamp_attr_name="time", **options)


def rows_of(matrix: Any) -> list[list[Row]]:
    columns = (matrix.ids.tolist(), matrix.times.tolist(), matrix.edges.tolist())
    return [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("align", ["right", "left"])
@pytest.mark.parametrize("hop_time", ["seed", "edge"])
def test_each_row_has_the_last_neighbours_of_its_seed(align: Any, hop_time: Any) -> None:
    for minibatch in sampled((4, 3, 5), hop_time=hop_time).to_matrix(align):
        ids = minibatch.seeds.flatten().tolist()
        moments = minibatch.timestamp[minibatch.indexes].repeat_interleave(2).tolist()
        limits = moments
        assert [own.ids.shape[1] for own in minibatch.matrices] == [5, 3, 4]
        for matrix in minibatch.matrices:
            assert (matrix.seeds.tolist(), matrix.seed_times.tolist()) == (ids, moments)
            found, width = rows_of(matrix), matrix.ids.shape[1]
            for node, limit, row in zip(ids, limits, found, strict=True):
                real = last(node, limit, width)
                padding = [PADDED] * (width - len(real))
                assert row == (padding + real if align == "right" else real + padding)
            assert matrix.mask.equal(matrix.ids >= 0)
            ids = matrix.ids.flatten().tolist()
            moments = matrix.times.flatten().tolist()
            limits = moments if hop_time == "edge" else [limit for limit in limits for _ in range(width)]


@pytest.mark.parametrize("align", ["right", "left"])
def test_random_neighbours_are_in_the_order_of_time(align: Any) -> None:
    for minibatch in sampled(strategy="uniform").to_matrix(align):
        for matrix in minibatch.matrices:
            for node, limit, row in zip(
                matrix.seeds.tolist(), matrix.seed_times.tolist(), rows_of(matrix), strict=True
            ):
                real = [place for place in row if place != PADDED]
                all_seen = seen(node, limit)
                assert len(real) == len(set(real)) == min(len(all_seen), len(row))
                assert set(real) <= set(all_seen)
                assert [time for _, time, _ in real] == sorted(time for _, time, _ in real)
                assert row == ([PADDED] * len(row) + real)[-len(row) :] or align == "left"
                assert row == (real + [PADDED] * len(row))[: len(row)] or align == "right"


@pytest.mark.parametrize("strategy", ["latest", "uniform"])
def test_features_have_the_shape_of_the_matrix(strategy: Any) -> None:
    pipe = sampled(strategy=strategy).fetch_feature(STORE, ["x"], ["message"]).to_matrix()
    for minibatch in pipe:
        assert minibatch.node_features["x"].flatten().equal(NODE_ROWS[minibatch.seeds.flatten()])
        for matrix in minibatch.matrices:
            expected = torch.where(matrix.mask, NODE_ROWS[matrix.ids], 0)
            assert matrix.node_features["x"].equal(expected[:, :, None])
            expected = torch.where(matrix.mask[:, :, None], EDGE_ROWS[matrix.edges], 0)
            assert matrix.edge_features["message"].equal(expected)


def test_times_may_be_given() -> None:
    seconds = gf.TorchBasedFeature(torch.arange(2 * NUM_EVENTS)[:, None])
    for matrix in next(iter(sampled().to_matrix(times=seconds))).matrices:
        assert matrix.times[matrix.mask].equal(matrix.edges[matrix.mask])


@pytest.mark.slow
def test_it_is_the_same_everywhere() -> None:
    check_same_everywhere(sampled().fetch_feature(STORE, ["x"], ["message"]).to_matrix("left"))


def test_what_has_no_rows_per_edge_is_refused() -> None:
    items: Any = gf.ItemSampler(event_items(), batch_size=64)
    whole: Any = sampled().to_matrix()
    removed: Any = sampled().exclude_seed_edges(True).to_matrix()
    check_refused([
        (lambda: items.sample_neighbor(GRAPH, [2]).to_matrix(), ValueError, "needs a temporal sampler before it"),
        (lambda: sampled([-1]).to_matrix(), ValueError, r"fan-outs of 0 or more, .* but its fan-outs are \[-1\]"),
        (lambda: sampled(disjoint=True, hop_time="seed").to_matrix(), ValueError, "without disjoint"),
        (lambda: ANY.ToMatrix(sampled(), "middle"), ValueError, "align must be 'right' or 'left', but is 'middle'"),
        (lambda: next(iter(removed)), ValueError, "edges were removed after sampling"),
        (lambda: whole(gf.MiniBatch()), ValueError, "has no sampled_subgraphs; put a temporal"),
    ])  # fmt: skip
