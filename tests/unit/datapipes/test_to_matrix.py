"""Neighbours as matrices."""

from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from tests.kinds.events import ENDS, NUM_EVENTS, NUM_NODES, TIMES, check_same_everywhere, event_graph, event_items
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


@pytest.mark.slow
def test_matrices_written_at_once_are_the_same_everywhere() -> None:
    check_same_everywhere(sampled((0, 3), visible="batch").to_matrix())
    check_same_everywhere(sampled((4, 3)).to_matrix("left"))


def with_times(*times: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph of edges from 1, 2 and so on to node 0."""
    edges = [*range(1, len(times) + 1)], [0] * len(times)
    return gf.from_coo(edges, NUM_NODES, edge_attributes={"time": torch.tensor(times)})


ENDS_32 = (ENDS.int(), ENDS.flip(0).int())
NARROW = gf.from_coo(
    torch.cat(ENDS_32, 1), NUM_NODES, edge_attributes={"time": torch.from_numpy(np.tile(TIMES, 2)).int()}
)
PAIRS = (ENDS.T, torch.from_numpy(TIMES))
NODES = (torch.arange(NUM_NODES).int(), torch.arange(NUM_NODES) * 9 + 990)


@pytest.mark.parametrize("graph", [GRAPH, NARROW], ids=["int64", "int32"])
@pytest.mark.parametrize(
    ("items", "options"),
    [
        (PAIRS, {}),
        (PAIRS, {"visible": "batch", "pre_time_window": 60}),
        (PAIRS, {"pre_time_window": 0}),
        (NODES, {}),
        ((*NODES, torch.arange(NUM_NODES) * 2), {"fanouts": (0, 3, 0)}),
        ((*NODES, torch.arange(NUM_NODES) * 2), {"visible": "batch"}),
    ],
)
@pytest.mark.parametrize("align", ["right", "left"])
def test_matrices_written_at_once_are_those_of_both_stages(graph: Any, items: Any, options: Any, align: Any) -> None:
    names = ("seeds", "timestamp", "pre_time_window")[: len(items)]
    options = {"fanouts": (3, 5, 2), "strategy": "latest", "hop_time": "edge"} | options
    pipe = gf.ItemSampler(gf.ItemSet(items, names=names), batch_size=64)
    pipe = pipe.temporal_sample_neighbor(graph, edge_timestamp_attr_name="time", **options).to_matrix(align)
    with gf.DataLoader(pipe, num_workers=0, seed=0) as loader:
        assert "LatestMatrices" in loader.explain()
        for found, expected in zip(loader, pipe, strict=True):
            assert vars(found).keys() == vars(expected).keys()
            assert found.input_nodes.equal(expected.input_nodes)
            for one, other in zip(found.matrices, expected.matrices, strict=True):
                for name in ("seeds", "seed_times", "ids", "times", "edges", "mask"):
                    own, their = getattr(one, name), getattr(other, name)
                    assert (own.dtype, own.shape) == (their.dtype, their.shape)
                    assert own.equal(their)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (GRAPH, {"hop_time": "seed"}),
        (GRAPH, {"strategy": "uniform"}),
        (GRAPH, {"inclusive": True}),
        (with_times(3, 1, 2), {}),
        (with_times(torch.iinfo(torch.int64).min, 1, 2), {}),
    ],
)
def test_others_are_arranged_after_sampling(graph: Any, options: Any) -> None:
    items = gf.ItemSet((torch.arange(3), torch.tensor([2, 3, 4])), names=("seeds", "timestamp"))
    options = {"strategy": "latest", "hop_time": "edge", "edge_timestamp_attr_name": "time"} | options
    pipe = gf.ItemSampler(items, batch_size=3).temporal_sample_neighbor(graph, [2], **options).to_matrix()
    with gf.DataLoader(pipe, num_workers=0, seed=0) as loader:
        assert "ToMatrix" in loader.explain()
        ((found, expected),) = zip(loader, pipe.with_seed(0), strict=True)
        assert found.matrices[0].edges.equal(expected.matrices[0].edges)


class Counted(gf.ToMatrix):
    """A stage of a user, which adds the number of neighbours."""

    def __call__(self, minibatch: Any) -> Any:
        result: Any = super().__call__(minibatch)
        result.num_neighbours = result.matrices[0].mask.sum(1)
        return result


def test_a_subclass_arranges_neighbours_itself() -> None:
    with gf.DataLoader(Counted(sampled()), num_workers=0, seed=0) as loader:
        minibatch: Any = next(iter(loader))
    assert minibatch.num_neighbours.equal(minibatch.matrices[0].mask.sum(1))


def test_a_stage_runs_where_it_was_placed() -> None:
    with gf.DataLoader(sampled().to_matrix().changed(runs_in=gf.Placement.MAIN), num_workers=2, seed=0) as loader:
        explained = loader.explain()
    assert "ToMatrix" in explained
    assert "LatestMatrices" not in explained


def test_seeds_and_windows_out_of_range_are_refused_at_once() -> None:
    def first(*items: Any) -> Any:
        pipe = gf.ItemSampler(gf.ItemSet(items, names=("seeds", "timestamp", "pre_time_window")), batch_size=2)
        options: Any = {"edge_timestamp_attr_name": "time", "strategy": "latest", "hop_time": "edge"}
        return next(iter(gf.DataLoader(pipe.temporal_sample_neighbor(with_times(1), [2], **options).to_matrix())))

    times, windows = torch.tensor([5, 5]), torch.tensor([5, 5])
    check_refused([
        (lambda: first(torch.tensor([0, NUM_NODES]), times, windows), ValueError, f"but holds {NUM_NODES}"),
        (lambda: first(torch.tensor([0, -1]), times, windows), ValueError, "seeds must be .* but holds -1"),
        (lambda: first(torch.tensor([0, 1]), times, -windows), ValueError, "windows must be 0 or more, but one is -5"),
    ])  # fmt: skip


def test_edits_of_a_graph_in_place_are_found() -> None:
    graph = with_times(1, 2, 3)
    items = gf.ItemSet((torch.arange(1), torch.tensor([9])), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, batch_size=1).temporal_sample_neighbor(
        graph, [2, 2], edge_timestamp_attr_name="time", strategy="latest", hop_time="edge"
    )
    loader = gf.DataLoader(pipe.to_matrix(), num_workers=0, seed=0)
    assert next(iter(loader)).matrices[0].ids.tolist() == [[2, 3]]
    graph.csc_indptr.numpy()[1] = 1 << 40
    with pytest.raises(ValueError, match="changed after the graph was checked"):
        next(iter(loader))


def test_times_that_edges_no_longer_follow_are_refused() -> None:
    graph = with_times(1, 2, 3)
    items = gf.ItemSet((torch.arange(1), torch.tensor([9])), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, batch_size=1).temporal_sample_neighbor(
        graph, [2], edge_timestamp_attr_name="time", strategy="latest", hop_time="edge"
    )
    loader = gf.DataLoader(pipe.to_matrix(), num_workers=0, seed=0)
    graph.edge_attributes = {"time": torch.tensor([4, 5, 6])}
    assert next(iter(loader)).matrices[0].times.tolist() == [[5, 6]]
    graph.edge_attributes = {"time": torch.tensor([6, 5, 4])}
    with pytest.raises(RuntimeError, match="make a new loader"):
        next(iter(loader))


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
