"""Attributes that are a `TensorFrame` of pytorch-frame's: each mini-batch has the rows of its own nodes and edges."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import pyg
from tests.pyg.neighborhood import NUM_EDGES, NUM_NODES, SIZES, heterogeneous, homogeneous

torch_frame = pytest.importorskip("torch_frame")


def frame(count: int) -> Any:
    """Return a table with a column of categories and one of numbers, in which each row tells its id."""
    ids = torch.arange(count)[:, None]
    columns = {torch_frame.categorical: ids % 3, torch_frame.numerical: ids.float()}
    names = {torch_frame.categorical: ["kind"], torch_frame.numerical: ["size"]}
    return torch_frame.TensorFrame(columns, names, y=ids.squeeze(1))


def untyped() -> Any:
    data = homogeneous()
    data.tf, data.links = frame(NUM_NODES), frame(NUM_EDGES)
    return data


def typed() -> Any:
    data = heterogeneous()
    for node_type, count in SIZES.items():
        del data[node_type].x
        data[node_type].tf = frame(count)
    return data


LOADERS: dict[str, Callable[..., Any]] = {
    "nodes": lambda **given: pyg.NeighborLoader(untyped(), [3, 2], batch_size=20, **given),
    "nodes of types, in time": lambda **given: pyg.NeighborLoader(
        typed(), [3, 2], "item", time_attr="time", batch_size=9, **given
    ),
    "links": lambda **given: pyg.LinkNeighborLoader(untyped(), [2], neg_sampling="binary", batch_size=50, **given),
    "hgt": lambda **given: pyg.HGTLoader(typed(), [3, 3], "item", batch_size=9, **given),
    "roots": lambda **given: pyg.ShaDowKHopSampler(untyped(), 2, 3, batch_size=20, **given),
    "clusters": lambda **given: pyg.ClusterLoader(pyg.ClusterData(untyped(), 6, log=False), batch_size=2, **given),
    "parts": lambda **given: pyg.RandomNodeLoader(untyped(), 3, **given),
    "saint": lambda **given: pyg.GraphSAINTNodeSampler(untyped(), 20, num_steps=3, **given),
}


def assert_rows(batch: Any) -> None:
    """Raise unless the frames of a mini-batch have the rows of its nodes and edges."""
    for table in (*batch.node_stores, *batch.edge_stores):
        for name, ids in (("tf", "n_id"), ("links", "e_id")):
            if name in table:
                assert table[name] == frame(NUM_EDGES)[table[ids]]


@pytest.mark.parametrize("name", LOADERS)
def test_mini_batches_of_each_loader_have_the_rows_of_their_own(name: str) -> None:
    for num_workers in (0, 2):
        with LOADERS[name](num_workers=num_workers) as loader:
            for batch in (batches := list(loader)):
                assert_rows(batch)
                assert any("tf" in table for table in batch.node_stores)
            assert len(batches) == len(loader)


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["thread", "process"])
def test_workers_fetch_frames_where_they_are_told_to(worker: str) -> None:
    with LOADERS["nodes"](num_workers=1, worker=worker, filter_per_worker=True) as loader:
        for batch in loader:
            assert_rows(batch)
            assert len(batch.tf) == batch.num_nodes


def test_a_frame_is_a_feature_of_a_pipeline_and_back() -> None:
    graph, features = pyg.from_pyg(untyped())
    pipe = gf.ItemSampler(gf.ItemSet(NUM_NODES, names="seeds"), 20).sample_neighbor(graph, [2, 2])
    pipe = pipe.fetch_feature(features, node_feature_keys=["x", "tf"], edge_feature_keys=["links", "weight"])
    for by_hop in (True, False):
        for batch in gf.DataLoader(pipe.to_pyg_data(by_hop), num_workers=2, seed=0):
            assert_rows(batch)
            assert len(batch.links) == batch.num_edges
    assert "TensorFrame([60, 2])" in repr(features)
    back = pyg.to_pyg(graph, features)
    assert back.tf == frame(NUM_NODES)
    with pytest.raises(TypeError, match=r"TensorFrame\(\[60, 2\]\) is only read; set another TensorFrame in data"):
        features["node", None, "tf"].update(torch.ones(60, 2))


def test_another_frame_counts_from_the_next_epoch_on() -> None:
    data = untyped()
    loader = pyg.NeighborLoader(data, [2], batch_size=20)
    next(iter(loader))
    data.tf = frame(2 * NUM_NODES)[NUM_NODES:]
    for batch in loader:
        assert torch.equal(batch.tf.y, batch.n_id + NUM_NODES)
