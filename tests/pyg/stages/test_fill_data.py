"""What was sampled becomes data with features and what belongs to seeds."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import (
    FillData,
    LinkLoader,
    NeighborLoader,
    NeighborSampler,
    NodeLoader,
    RandomNodeLoader,
    ToSamplerOutput,
)
from graphfeed.pyg.data.data_features import DataFeatures, read_features
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.fill_data import fetch_and_fill
from graphfeed.pyg.stages.sampler_output import edge_index_of
from tests.pyg.neighborhood import SIZES, heterogeneous, homogeneous


def sampled(**options: Any) -> gf.Datapipe:
    graph = gf.from_coo(homogeneous().edge_index, 60)
    pipe = gf.ItemSampler(gf.ItemSet((torch.arange(60),) * 2, names=("seeds", "input_id")), 20)
    return ToSamplerOutput(pipe.sample_neighbor(graph, [2, 2], only_new=True, **options))


def test_what_was_fetched_is_not_copied() -> None:
    features = read_features(homogeneous())
    pipe = fetch_and_fill(sampled(), features)
    assert isinstance(pipe, FillData)
    for minibatch in pipe.datapipe:
        data = pipe(minibatch)
        assert data.x.data_ptr() == minibatch.node_features["x"].data_ptr()
        assert data.y.data_ptr() == minibatch.node_features["y"].data_ptr()
        assert data.edge_attr.data_ptr() == minibatch.edge_features[0]["edge_attr"].data_ptr()
        assert data.edge_index.data_ptr() == minibatch.output.row.data_ptr()
        assert data.n_id.data_ptr() == minibatch.output.node.data_ptr()


def test_without_a_template_the_data_begin_empty() -> None:
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.eye(60))})
    batch = next(iter(fetch_and_fill(sampled(), DataFeatures(store, {None: ["x"]}, {None: []}))))
    assert torch.equal(batch.x, torch.eye(60)[batch.n_id])
    assert batch.batch_size == 20


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
    """Return data that hold what mini-batches hold of their seeds, as `RandomLinkSplit` leaves some of it."""
    for store in (data[kind] for kind in kinds) if kinds else (data,):
        for name in OF_SEEDS:
            store[name] = torch.zeros(2, 7, dtype=torch.int64)
    return data


@pytest.mark.parametrize("typed", [False, True])
def test_what_the_data_hold_of_other_seeds_leaves_as_in_pyg(*, typed: bool) -> None:
    kind = ("user", "likes", "item")
    data = with_attributes_of_seeds(heterogeneous(), *SIZES, kind) if typed else with_attributes_of_seeds(homogeneous())
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


@pytest.mark.parametrize("typed", [False, True])
def test_a_subgraph_keeps_what_the_data_hold(*, typed: bool) -> None:
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


def test_rows_of_one_tensor_are_that_tensor() -> None:
    both = torch.arange(6).view(2, 3)
    found = edge_index_of(both[0], both[1])
    assert torch.equal(found, both)
    assert found.data_ptr() == both.data_ptr()
    assert edge_index_of(both[1], both[0]).tolist() == [[3, 4, 5], [0, 1, 2]]
    assert edge_index_of(both[0][:2], both[1][:2]).tolist() == [[0, 1], [3, 4]]
    assert edge_index_of(both[0][:0], both[1][:0]).shape == (2, 0)
