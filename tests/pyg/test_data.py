"""PyG's data of a mini-batch; with a stand-in where PyG is not installed."""

import copy
import sys
import warnings
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same


class Data(SimpleNamespace):
    """Takes attributes by either way, as PyG's."""

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class HeteroData:
    """Has a store for each type."""

    def __init__(self) -> None:
        self.stores: dict[Any, Data] = defaultdict(Data)

    def __getitem__(self, kind: Any) -> Data:
        return self.stores[kind]


@pytest.fixture(params=["stand-in", "installed"])
def pyg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "installed":
        if find_spec("torch_geometric") is None:
            pytest.skip("torch_geometric is not installed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other packages warn of on import is not ours
            import_module("torch_geometric.data")
    if request.param == "stand-in":
        module = ModuleType("torch_geometric.data")
        vars(module).update(Data=Data, HeteroData=HeteroData)
        monkeypatch.setitem(sys.modules, "torch_geometric", ModuleType("torch_geometric"))
        monkeypatch.setitem(sys.modules, "torch_geometric.data", module)


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
    with pytest.raises(ValueError, match=r"no sampled_subgraphs; sample before to_pyg_data\(\)"):
        gf.MiniBatch(seeds=torch.arange(2)).to_pyg_data()


def test_without_pyg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch_geometric", "torch_geometric.data"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"to_pyg_data\(\) needs torch_geometric, .*: pip install 'graphfeed\[pyg\]'"):
        next(iter(pipelines.homogeneous())).to_pyg_data()
