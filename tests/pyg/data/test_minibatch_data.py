"""PyG's data of a mini-batch; with a stand-in where PyG is not installed."""

import copy
import sys
import warnings
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same


def edges_of(batch: Any, kind: str | None = None) -> set[tuple[int, int]]:
    """Return the positions that each sampled edge joins."""
    found = set()
    for subgraph in batch.sampled_subgraphs:
        csc = subgraph.sampled_csc if kind is None else subgraph.sampled_csc[kind]
        for column, (low, high) in enumerate(zip(csc.indptr[:-1].tolist(), csc.indptr[1:].tolist(), strict=True)):
            found |= {(source, column) for source in csc.indices[low:high].tolist()}
    return found


def columns(index: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(edge) for edge in index.T.tolist()]


@pytest.mark.usefixtures("pyg")
def test_without_types() -> None:
    batch = next(iter(pipelines.homogeneous()))
    before = copy.deepcopy(batch)
    data = batch.to_pyg_data()
    assert columns(data.edge_index) == sorted(edges_of(batch))
    assert_same([data.x, data.y, data.n_id], [batch.node_features["feat"], batch.labels, batch.input_nodes])
    assert data.batch_size == 32
    assert_same(batch, before)


@pytest.mark.usefixtures("pyg")
def test_several_features_keep_their_names() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.node_features = {"feat": batch.node_features["feat"], "year": batch.input_nodes[:, None]}
    data = batch.to_pyg_data()
    assert_same([data.feat, data.year], [batch.node_features["feat"], batch.node_features["year"]])


@pytest.mark.usefixtures("pyg")
def test_without_features_or_labels() -> None:
    batch = next(iter(pipelines.weighted()))
    data = batch.to_pyg_data()
    assert columns(data.edge_index) == sorted(edges_of(batch))
    assert (data.y, data.batch_size) == (None, 40)


@pytest.mark.usefixtures("pyg")
def test_with_types() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    data = batch.to_pyg_data()
    for kind in ("user:likes:item", "item:liked_by:user", "user:knows:user"):
        assert columns(data[tuple(kind.split(":"))].edge_index) == sorted(edges_of(batch, kind))
    for kind in ("user", "item"):
        store = data[kind]
        assert_same([store.x, store.n_id], [batch.node_features[kind, "feat"], batch.input_nodes[kind]])
        assert_same(store.y, batch.labels[kind])
        assert (store.batch_size, store.num_nodes) == (len(batch.seeds[kind]), len(batch.input_nodes[kind]))


@pytest.mark.usefixtures("pyg")
def test_edges_as_seeds() -> None:
    batch = next(iter(pipelines.link_prediction()))
    batch.labels = torch.ones(50)
    data = batch.to_pyg_data()
    assert_same(data.n_id[data.edge_label_index], batch.seeds.T.contiguous())
    assert_same(data.edge_label, batch.labels)
    graph = gf.from_coo({"a:r:b": (torch.arange(6), torch.arange(6))}, {"a": 6, "b": 6})
    pairs = torch.stack([torch.arange(6), torch.arange(6).flip(0)], dim=1)
    items = gf.HeteroItemSet({"a:r:b": gf.ItemSet((pairs, torch.arange(6)), names=("seeds", "labels"))})
    data = next(iter(gf.ItemSampler(items, 4).sample_neighbor(graph, [2]))).to_pyg_data()
    store = data["a", "r", "b"]
    ends = [data[kind].n_id[store.edge_label_index[place]] for place, kind in enumerate("ab")]
    assert_same(torch.stack(ends, dim=1), pairs[:4])
    assert_same(store.edge_label, torch.arange(4))


@pytest.mark.usefixtures("pyg")
def test_before_sampling_there_are_no_edges() -> None:
    ids = torch.arange(2)
    data = gf.MiniBatch(seeds=ids, labels=ids + 5, node_features={"feat": torch.ones(2, 3)}).to_pyg_data()
    assert data.edge_index is None
    assert_same([data.x, data.y, data.n_id, data.batch_size], [torch.ones(2, 3), ids + 5, ids, 2])
    typed = gf.MiniBatch(seeds={"a": ids}, node_features={("a", "feat"): torch.ones(2, 3)}).to_pyg_data()
    assert_same([typed["a"].x, typed["a"].n_id, typed["a"].batch_size], [torch.ones(2, 3), ids, 2])
    features = gf.MiniBatch(node_features={"feat": torch.ones(2, 3)}).to_pyg_data()
    assert_same(features.x, torch.ones(2, 3))


@pytest.mark.usefixtures("pyg")
def test_all_nodes_come_in_the_order_of_the_hops() -> None:
    batch = next(iter(pipelines.homogeneous()))
    inner, outer = (len(hop.original_row_node_ids) for hop in reversed(batch.sampled_subgraphs))
    assert batch.to_pyg_data().num_sampled_nodes == [32, inner - 32, outer - inner]
    batch = next(iter(pipelines.heterogeneous()))
    data = batch.to_pyg_data()
    for kind in ("user", "item"):
        sizes = [len(batch.seeds[kind])] + [
            len(hop.original_row_node_ids[kind]) for hop in batch.sampled_subgraphs[::-1]
        ]
        assert data[kind].num_sampled_nodes == [sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1]]


@pytest.mark.usefixtures("pyg")
def test_the_members_of_an_item_set_that_pyg_knows() -> None:
    ids = torch.arange(6)
    items = gf.ItemSet((ids, ids * 10, ids + 100), names=("seeds", "timestamp", "input_id"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = list(gf.ItemSampler(items, batch_size=4))[1].to_pyg_data()
    assert_same([data.n_id, data.seed_time, data.input_id], [ids[4:], ids[4:] * 10, ids[4:] + 100])


def test_without_pyg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch_geometric", "torch_geometric.data"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=r'to_pyg_data\(\) needs torch_geometric, .*: pip install "\.\[pyg\]" in a clone'
    ):
        next(iter(pipelines.homogeneous())).to_pyg_data()
