"""Features of PyG's data, including tables with several kinds of columns, and the features of mini-batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import pyg
from graphfeed.pyg import (
    FillData,
    LinkLoader,
    NeighborLoader,
    NeighborSampler,
    NodeLoader,
    RandomNodeLoader,
    ToSamplerOutput,
)
from graphfeed.pyg.data import features_of_data, import_pyg
from graphfeed.pyg.stages.fill_data import fetch_and_fill
from tests.kinds.neighborhood import NUM_EDGES, NUM_NODES, SIZES, heterogeneous, homogeneous


def frame(count: int) -> Any:
    """Return a table with a column of categories and one of numbers, in which each row contains its id."""
    torch_frame = pytest.importorskip("torch_frame")
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


def test_mini_batches_of_each_loader_have_the_rows_of_their_own() -> None:
    for name in LOADERS:
        for num_workers in (0, 2):
            with LOADERS[name](num_workers=num_workers) as loader:
                for batch in (batches := list(loader)):
                    assert_rows(batch)
                    assert any("tf" in table for table in batch.node_stores)
                assert len(batches) == len(loader)


@pytest.mark.slow
def test_workers_fetch_frames_where_they_are_told_to() -> None:
    for worker in ["thread", "process"]:
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
    with pytest.raises(TypeError, match=r"TensorFrame\(\[60, 2\]\) is read-only; set another TensorFrame in data"):
        features["node", None, "tf"].update(torch.ones(60, 2))


def test_another_frame_counts_from_the_next_epoch_on() -> None:
    data = untyped()
    loader = pyg.NeighborLoader(data, [2], batch_size=20)
    next(iter(loader))
    data.tf = frame(2 * NUM_NODES)[NUM_NODES:]
    for batch in loader:
        assert torch.equal(batch.tf.y, batch.n_id + NUM_NODES)


def test_ids_sizes_and_dimensions_are_those_of_the_data() -> None:
    data = homogeneous()
    data.n_id, data.e_id, data.num_nodes = torch.arange(60) + 500, torch.arange(200) + 700, 60
    data.some_index = torch.arange(120).view(2, 60)
    batch = next(iter(NeighborLoader(data, [2], batch_size=4)))
    assert torch.equal(batch.n_id, batch.y + 500)
    assert torch.equal(batch.e_id - 700, batch.edge_attr.squeeze(1).long())
    assert batch.num_nodes == len(batch.n_id) < 60
    assert torch.equal(batch.some_index, data.some_index[:, batch.y])


OF_SEEDS = ("batch", "seed_time", "edge_label", "edge_label_index", "edge_label_time", "num_sampled_nodes")


def with_attributes_of_seeds(data: Any, *kinds: Any) -> Any:
    """Return data with the attributes that mini-batches have for their seeds, some of which `RandomLinkSplit` adds."""
    for store in (data[kind] for kind in kinds) if kinds else (data,):
        for name in OF_SEEDS:
            store[name] = torch.zeros(2, 7, dtype=torch.int64)
    return data


def test_what_the_data_hold_of_other_seeds_leaves_as_in_pyg() -> None:
    for typed in [False, True]:
        kind = ("user", "likes", "item")
        data = (
            with_attributes_of_seeds(heterogeneous(), *SIZES, kind)
            if typed
            else with_attributes_of_seeds(homogeneous())
        )
        theirs, sampler = import_pyg("torch_geometric.loader", "tests"), NeighborSampler(data, [2])
        cases: list[Any] = [((NodeLoader, theirs.NodeLoader), {"input_nodes": "user" if typed else None})]
        for negatives in (None, "binary", "triplet"):
            given = {"edge_label_index": kind if typed else None, "neg_sampling": negatives}
            cases.append(((LinkLoader, theirs.LinkLoader), given))
        for loaders, given in cases:
            own, other = (next(iter(make(data, sampler, batch_size=4, **given))) for make in loaders)
            for store, expected in zip(own.stores, other.stores, strict=True):
                assert set(store.keys()) == set(expected.keys()), given
                for name in OF_SEEDS:
                    if isinstance(expected.get(name), torch.Tensor):
                        assert store[name].shape == expected[name].shape, given


def test_a_subgraph_keeps_what_the_data_hold() -> None:
    for typed in [False, True]:
        data = heterogeneous() if typed else homogeneous()
        store = data["user"] if typed else data
        store.batch = torch.arange(len(store.x)) // 7
        for batch in RandomNodeLoader(data, 3):
            part = batch["user"] if typed else batch
            assert torch.equal(part.batch, part.n_id // 7)


@pytest.mark.slow  # compiles kernels for them
@pytest.mark.thorough
def test_ids_of_32_bits_become_those_of_64() -> None:
    indptr, indices = torch.tensor([0, 2, 2, 2], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32)
    seeds = gf.ItemSampler(gf.ItemSet(torch.tensor([0]), names="seeds"), 1)
    pipe = seeds.sample_neighbor(gf.fused_csc_sampling_graph(indptr, indices), [-1], only_new=True)
    output = next(iter(ToSamplerOutput(pipe))).output
    assert {part.dtype for part in (output.node, output.row, output.col, output.edge)} == {torch.int64}


def sampled(**options: Any) -> gf.Datapipe:
    graph = gf.from_coo(homogeneous().edge_index, 60)
    pipe = gf.ItemSampler(gf.ItemSet((torch.arange(60),) * 2, names=("seeds", "input_id")), 20)
    return ToSamplerOutput(pipe.sample_neighbor(graph, [2, 2], only_new=True, **options))


def test_what_was_fetched_is_not_copied() -> None:
    features = features_of_data(homogeneous())
    pipe = fetch_and_fill(sampled(), features)
    assert isinstance(pipe, FillData)
    for minibatch in pipe.datapipe:
        data = pipe(minibatch)
        assert data.x.data_ptr() == minibatch.node_features["x"].data_ptr()
        assert data.y.data_ptr() == minibatch.node_features["y"].data_ptr()
        assert data.edge_attr.data_ptr() == minibatch.edge_features[0]["edge_attr"].data_ptr()
        assert data.edge_index.data_ptr() == minibatch.output.row.data_ptr()
        assert data.n_id.data_ptr() == minibatch.output.node.data_ptr()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_are_trained_through_a_loader(num_workers: int) -> None:
    nodes, edges = (gf.TrainableFeature(count, 2, "sgd", 0.5, init=0.0) for count in (NUM_NODES, NUM_EDGES))
    data = homogeneous()
    data.x, data.edge_attr, data.num_nodes = nodes, edges, NUM_NODES
    expected = torch.zeros(NUM_NODES, 2), torch.zeros(NUM_EDGES, 2)
    for batch in NeighborLoader(data, [3, 2], batch_size=32, shuffle=True, num_workers=num_workers):
        assert torch.equal(batch.x.detach(), nodes.read(batch.n_id))
        (batch.x.sum() + batch.edge_attr.sum()).backward()
        for table, rows, ids in zip((nodes, edges), expected, (batch.n_id, batch.e_id), strict=True):
            table.step()
            rows[ids] -= 0.5
    assert torch.equal(nodes.read(), expected[0])
    assert torch.equal(edges.read(), expected[1])
    assert data.x is nodes


def test_rows_of_one_type_are_trained() -> None:
    data = heterogeneous()
    first, second = data.node_types[:2]
    table = gf.TrainableFeature(data[first].num_nodes, 2, "sgd", init=0.0)
    data[first].vector = table
    batch = next(iter(NeighborLoader(data, [3, 2], input_nodes=first, batch_size=8, num_workers=2)))
    assert batch[first].vector.requires_grad
    assert "vector" not in batch[second]


def test_rows_that_are_trained_are_not_in_clusters_but_their_ids_are() -> None:
    data, table = homogeneous(), gf.TrainableFeature(NUM_NODES, 2, "sgd", 1.0, init=0.0)
    data.x, data.num_nodes = table, NUM_NODES
    with pytest.raises(TypeError, match=r"x is a TrainableFeature, whose rows can't .* ids of the nodes instead"):
        pyg.ClusterData(data, num_parts=3)
    del data.x
    data.ids = torch.arange(NUM_NODES)
    for batch in pyg.ClusterLoader(pyg.ClusterData(data, num_parts=3), batch_size=2):
        table.fetch(batch.ids).sum().backward()  # type: ignore[no-untyped-call]
        table.step()
    assert table.read().eq(-1).all()
