"""PyG's data of a mini-batch: nodes, labels and seeds; edges without duplicates, with ids and features; the stage."""

import copy
import sys
import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import pyg
from graphfeed.pyg import from_pyg
from graphfeed.pyg.data import import_pyg
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digests
from tests.kinds.neighborhood import heterogeneous, homogeneous

Edge = tuple[int, int, int]


def listed(subgraph: gf.SampledSubgraph, kind: str | None = None) -> list[Edge]:
    """Return source, destination and id of each edge of a hop."""
    csc = subgraph.sampled_csc if kind is None else subgraph.sampled_csc[kind]
    ids = subgraph.original_edge_ids if kind is None else subgraph.original_edge_ids[kind]
    found = []
    for column, (low, high) in enumerate(pairwise(csc.indptr.tolist())):
        found += [(int(csc.indices[place]), column, int(ids[place])) for place in range(low, high)]
    return found


def drawn(batch: Any, kind: str | None = None) -> tuple[list[Edge], list[int]]:
    """Return the edges, hop by hop, that no inner hop has, and how many each hop adds."""
    found: list[Edge] = []
    counts = []
    for hop in reversed(batch.sampled_subgraphs):
        known = set(found)
        found += (own := [edge for edge in listed(hop, kind) if edge not in known])
        counts.append(len(own))
    return found, counts


def rows_of(store: Any) -> list[Edge]:
    return list(zip(*store.edge_index.tolist(), store.e_id.tolist(), strict=True))


def by_ends(edges: list[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda edge: edge[:2])


def test_nodes_edges_features_and_labels_are_those_of_the_mini_batch() -> None:
    """Edges are those that no hop further inside has, in the order of their ends or of the hops."""
    for batch in (*pipelines.homogeneous(), *pipelines.weighted(), *pipelines.link_prediction()):
        before, (edges, counts) = copy.deepcopy(batch), drawn(batch)
        data, by_hop = batch.to_pyg_data(), batch.to_pyg_data(by_hop=True)
        assert rows_of(data) == by_ends(edges)
        assert (rows_of(by_hop), by_hop.num_sampled_edges) == (edges, counts)
        features = batch.node_features or {"feat": None}
        assert_same([data.x, data.y, data.n_id], [features["feat"], batch.labels, batch.input_nodes])
        sizes = [0, *(len(hop.original_row_node_ids) for hop in reversed(batch.sampled_subgraphs))]
        assert sum(data.num_sampled_nodes) == sizes[-1]
        assert data.num_sampled_nodes[2:] == [sizes[2] - sizes[1]]
        if batch.seeds.dim() == 1:
            assert data.batch_size == data.num_sampled_nodes[0] == len(batch.seeds)
        assert_same(batch, before)
    for batch in pipelines.heterogeneous():
        data, by_hop = batch.to_pyg_data(), batch.to_pyg_data(by_hop=True)
        for kind in ("user:likes:item", "item:liked_by:user", "user:knows:user"):
            edges, counts = drawn(batch, kind)
            store = by_hop[tuple(kind.split(":"))]
            assert (rows_of(store), store.num_sampled_edges) == (edges, counts)
            assert rows_of(data[tuple(kind.split(":"))]) == by_ends(edges)
        for store in (data["user", "likes", "item"], by_hop["user", "likes", "item"]):
            assert_same(store.edge_attr[:, 0], store.e_id)
        for kind in ("user", "item"):
            store = data[kind]
            assert_same(
                [store.x, store.n_id, store.y],
                [batch.node_features[kind, "feat"], batch.input_nodes[kind], batch.labels[kind]],
            )
            assert (store.batch_size, store.num_nodes) == (len(batch.seeds[kind]), len(batch.input_nodes[kind]))
            first, second = (len(hop.original_row_node_ids[kind]) for hop in reversed(batch.sampled_subgraphs))
            assert store.num_sampled_nodes == [store.batch_size, first - store.batch_size, second - first]


def test_several_features_keep_their_names() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.node_features = {"feat": batch.node_features["feat"], "year": batch.input_nodes[:, None]}
    batch.edge_features = [{"a": hop.original_edge_ids, "b": -hop.original_edge_ids} for hop in batch.sampled_subgraphs]
    data = batch.to_pyg_data()
    assert_same([data.feat, data.year], [batch.node_features["feat"], batch.node_features["year"]])
    assert_same([data.a, data.b], [data.e_id, -data.e_id])


def test_a_feature_y_stays_one() -> None:
    for names in [["x", "y"], ["y"], ["y", "time"]]:
        rows = {name: torch.rand(6, 2) for name in names}
        store = gf.BasicFeatureStore({("node", None, name): gf.TorchBasedFeature(own) for name, own in rows.items()})
        pipe = gf.ItemSampler(gf.ItemSet(6, names="seeds"), batch_size=4)
        for data in (
            pipe.sample_neighbor(gf.from_coo(torch.tensor([[1, 2], [0, 1]]), 6), [1])
            .fetch_feature(store, node_feature_keys=names)
            .to_pyg_data()
        ):
            assert_same([data[name] for name in names], [rows[name][data.n_id] for name in names])


def test_a_name_that_two_things_have_is_refused() -> None:
    ids = torch.arange(2)
    for name in ("y", "n_id"):
        batch = gf.MiniBatch(seeds=ids, labels=ids, node_features={name: ids, "b": ids})
        with pytest.raises(ValueError, match=f"'{name}' would occur twice in PyG's data"):
            batch.to_pyg_data()
    of_both = gf.MiniBatch(seeds={"a": ids}, labels={"a": ids}, node_features={("a", "y"): ids})
    with pytest.raises(ValueError, match="'y' of 'a' would occur twice"):
        of_both.to_pyg_data()


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


def test_before_sampling_there_are_no_edges() -> None:
    ids, x = torch.arange(2), torch.ones(2, 3)
    data = gf.MiniBatch(seeds=ids, labels=ids + 5, node_features={"feat": x}).to_pyg_data()
    assert data.edge_index is None
    assert_same([data.x, data.y, data.n_id, data.batch_size], [x, ids + 5, ids, 2])
    store = gf.MiniBatch(seeds={"a": ids}, node_features={("a", "feat"): x}).to_pyg_data()["a"]
    assert_same([store.x, store.n_id, store.batch_size], [x, ids, 2])
    assert_same(gf.MiniBatch(node_features={"feat": x}).to_pyg_data().x, x)


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
    with pytest.raises(ImportError, match=r'needs torch_geometric, .*: pip install "graphfeed\[pyg\]"'):
        next(iter(pipelines.homogeneous())).to_pyg_data()


def parallel(replace: bool = False) -> gf.MiniBatch:
    """Return a mini-batch of a graph in which two edges join the same nodes, each drawn by both hops."""
    graph = gf.from_coo(torch.tensor([[1, 1, 0], [0, 0, 1]]), num_nodes=2)
    store = gf.BasicFeatureStore({("edge", None, "w"): gf.TorchBasedFeature(torch.tensor([[5.0], [6.0], [7.0]]))})
    pipe = gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=2)
    pipe = pipe.sample_neighbor(graph, [5, 5] if replace else [-1, -1], replace=replace)
    minibatch: gf.MiniBatch = next(iter(pipe.fetch_feature(store, edge_feature_keys=["w"])))
    return minibatch


def test_parallel_edges_are_two_with_their_own_features_and_what_a_hop_draws_twice_is_there_twice() -> None:
    assert rows_of(parallel().to_pyg_data()) == [(0, 1, 2), (1, 0, 0), (1, 0, 1)]
    data = parallel().to_pyg_data(by_hop=True)
    assert sorted(rows_of(data)) == [(0, 1, 2), (1, 0, 0), (1, 0, 1)]
    assert data.num_sampled_edges == [3, 0]
    assert_same(data.edge_attr.squeeze(1), data.e_id + 5.0)
    batch = parallel(replace=True)
    edges, counts = drawn(batch)
    data = batch.to_pyg_data(by_hop=True)
    assert (rows_of(data), data.num_sampled_edges) == (edges, counts)
    assert len(set(edges)) < len(edges)


def test_an_edge_in_the_trees_of_two_seeds_is_two_and_a_hop_may_be_empty() -> None:
    graph = gf.from_coo(torch.tensor([[1, 2, 0], [0, 1, 2]]), num_nodes=4)
    for seeds, edges in (([0, 1], [0, 1, 1, 2]), ([3], [])):
        pipe = gf.ItemSampler(gf.ItemSet(torch.tensor(seeds), names="seeds"), batch_size=2)
        for by_hop in (False, True):
            (data,) = pipe.sample_neighbor(graph, [-1, -1], disjoint=True).to_pyg_data(by_hop)
            assert sorted(data.e_id.tolist()) == edges
            assert data.edge_index.shape == (2, len(edges))


def test_without_ids_edges_of_several_hops_are_told_apart_by_their_nodes() -> None:
    batch = parallel()
    batch.edge_features = None
    for hop in batch.sampled_subgraphs or ():
        hop.original_edge_ids = None
    for by_hop in (False, True):
        data = batch.to_pyg_data(by_hop)
        assert sorted(data.edge_index.T.tolist()) == [[0, 1], [1, 0], [1, 0]]
        assert "e_id" not in data


def test_edges_that_are_gone_after_their_features_were_fetched_are_an_error() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.edge_features = [{"a": hop.original_edge_ids[1:]} for hop in batch.sampled_subgraphs]
    with pytest.raises(ValueError, match=r"edge feature 'a' has \d+ rows, but .* \d+ edges; put fetch_feature after"):
        batch.to_pyg_data()


def test_pyg_trims_it_to_the_layer() -> None:
    trim = pytest.importorskip("torch_geometric.utils").trim_to_layer
    batch = next(iter(pipelines.homogeneous()))
    data = batch.to_pyg_data(by_hop=True)
    sizes = (data.num_sampled_nodes, data.num_sampled_edges)
    x, index, _ = trim(1, *sizes, data.x, data.edge_index)
    inner = batch.sampled_subgraphs[-1]
    assert_same(x, batch.node_features["feat"][: len(inner.original_row_node_ids)])
    assert sorted(index.T.tolist()) == sorted(list(edge[:2]) for edge in listed(inner))


def test_the_stage_gives_what_the_method_gives() -> None:
    for by_hop in (False, True):
        expected = digests(batch.to_pyg_data(by_hop) for batch in pipelines.heterogeneous())
        with gf.DataLoader(pipelines.heterogeneous().to_pyg_data(by_hop=by_hop), seed=0) as loader:
            assert digests(loader) == expected, by_hop


def test_attributes_of_from_pyg_have_their_shape_in_mini_batches() -> None:
    for typed in [False, True]:
        for by_hop in [False, True]:
            data = heterogeneous() if typed else homogeneous()
            store, kind = (data["user"], data["user", "knows", "user"]) if typed else (data, data)
            kind.edge_time = torch.arange(kind.num_edges)
            kind.wide = torch.arange(2 * kind.num_edges).view(-1, 2)
            kind.some_index = torch.arange(2 * kind.num_edges).view(2, -1)
            graph, features = from_pyg(data)
            items = gf.ItemSet(torch.arange(9), names="seeds")
            pipe = gf.ItemSampler(gf.HeteroItemSet({"user": items}) if typed else items, 4).sample_neighbor(
                graph, [2, 2]
            )
            nodes, edges = ["x", "y", "time"], ["edge_time", "wide", "some_index"]
            fetch: Any = ({"user": nodes}, {"user:knows:user": edges}) if typed else (nodes, edges)
            pipe = pipe.fetch_feature(features, *fetch)
            batches = list(gf.DataLoader(pipe, num_workers=2, worker="process", seed=0))
            found = [batch.to_pyg_data(by_hop) for batch in batches]
            for batch in found:
                own, of_edges = (batch["user"], batch["user", "knows", "user"]) if typed else (batch, batch)
                for name in nodes:
                    assert torch.equal(own[name], store[name][own.n_id])
                for name in edges:
                    rows = kind[name][:, of_edges.e_id] if name == "some_index" else kind[name][of_edges.e_id]
                    assert torch.equal(of_edges[name], rows)


def test_of_a_batch_of_graphs_each_node_keeps_its_graph() -> None:
    for typed in [False, True]:
        graphs = [heterogeneous() if typed else homogeneous() for _ in range(3)]
        data = import_pyg("torch_geometric.data", "tests").Batch.from_data_list(graphs)
        store = data["user"] if typed else data
        for batch in pyg.NeighborLoader(data, [2, 2], "user" if typed else None, batch_size=50):
            own = batch["user"] if typed else batch
            assert torch.equal(own.batch, store.batch[own.n_id])
            assert "ptr" not in own
        disjoint = next(iter(pyg.NeighborLoader(data, [2], "user" if typed else None, batch_size=50, disjoint=True)))
        assert (disjoint["user"] if typed else disjoint).batch[:50].tolist() == list(range(50))
        with pytest.warns(UserWarning, match="data is a Batch, whose ptr, num_graphs and rows of graphs are left out"):
            features = from_pyg(data)[1]
        assert torch.equal(features.read("node", "user" if typed else None, "batch").squeeze(1), store.batch)
