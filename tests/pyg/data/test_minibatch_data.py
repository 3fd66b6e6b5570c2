"""PyG's data of a mini-batch: nodes, labels and seeds; edges, each once, with ids and features; and the stage."""

import copy
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.layer_data import edge_index
from tests import pipelines
from tests.digests import assert_same, digests


def test_without_types() -> None:
    batch = next(iter(pipelines.homogeneous()))
    before = copy.deepcopy(batch)
    data = batch.to_pyg_data()
    assert_same([data.x, data.y, data.n_id], [batch.node_features["feat"], batch.labels, batch.input_nodes])
    assert data.batch_size == 32
    assert_same(batch, before)


def test_several_features_keep_their_names() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.node_features = {"feat": batch.node_features["feat"], "year": batch.input_nodes[:, None]}
    data = batch.to_pyg_data()
    assert_same([data.feat, data.year], [batch.node_features["feat"], batch.node_features["year"]])


def test_with_types() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    data = batch.to_pyg_data()
    for kind in ("user", "item"):
        store = data[kind]
        assert_same([store.x, store.n_id], [batch.node_features[kind, "feat"], batch.input_nodes[kind]])
        assert_same(store.y, batch.labels[kind])
        assert (store.batch_size, store.num_nodes) == (len(batch.seeds[kind]), len(batch.input_nodes[kind]))


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
    ids = torch.arange(2)
    data = gf.MiniBatch(seeds=ids, labels=ids + 5, node_features={"feat": torch.ones(2, 3)}).to_pyg_data()
    assert data.edge_index is None
    assert_same([data.x, data.y, data.n_id, data.batch_size], [torch.ones(2, 3), ids + 5, ids, 2])
    typed = gf.MiniBatch(seeds={"a": ids}, node_features={("a", "feat"): torch.ones(2, 3)}).to_pyg_data()
    assert_same([typed["a"].x, typed["a"].n_id, typed["a"].batch_size], [torch.ones(2, 3), ids, 2])
    features = gf.MiniBatch(node_features={"feat": torch.ones(2, 3)}).to_pyg_data()
    assert_same(features.x, torch.ones(2, 3))


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


Edge = tuple[int, int, int]


def listed(subgraph: gf.SampledSubgraph, kind: str | None = None) -> list[Edge]:
    """Return source, destination and id of each edge of a hop."""
    csc: Any = subgraph.sampled_csc if kind is None else subgraph.sampled_csc[kind]
    ids: Any = subgraph.original_edge_ids if kind is None else subgraph.original_edge_ids[kind]
    found = []
    for column, (low, high) in enumerate(pairwise(csc.indptr.tolist())):
        found += [(csc.indices[place].item(), column, ids[place].item()) for place in range(low, high)]
    return found


def rows_of(store: Any) -> list[Edge]:
    return list(zip(*store.edge_index.tolist(), store.e_id.tolist(), strict=True))


def parallel(replace: bool = False) -> gf.MiniBatch:
    """Return a mini-batch of a graph in which two edges join the same nodes, each drawn by both hops."""
    graph = gf.from_coo(torch.tensor([[1, 1, 0], [0, 0, 1]]), num_nodes=2)
    pipe = gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=2)
    fanouts = [5, 5] if replace else [-1, -1]
    minibatch: gf.MiniBatch = next(iter(pipe.sample_neighbor(graph, fanouts, replace=replace)))
    return minibatch


def test_sorted_edges_are_those_of_torchs_unique_with_the_id_of_one_of_them() -> None:
    for batch in (*pipelines.homogeneous(), *pipelines.weighted(), *pipelines.link_prediction()):
        data = batch.to_pyg_data()
        hops = [edge_index(hop.sampled_csc) for hop in batch.sampled_subgraphs]
        assert_same(data.edge_index, torch.unique(torch.cat(hops, dim=1), dim=1))
        assert (data.y is None) == (batch.labels is None)
        assert set(rows_of(data)) <= {edge for hop in batch.sampled_subgraphs for edge in listed(hop)}


def test_by_hop_edges_come_where_they_are_first() -> None:
    for make in (pipelines.homogeneous, pipelines.weighted, pipelines.link_prediction):
        batch = next(iter(make()))
        data = batch.to_pyg_data(by_hop=True)
        seen: dict[int, Edge] = {}
        counts = []
        for hop in reversed(batch.sampled_subgraphs):
            before = len(seen)
            for edge in listed(hop):
                seen.setdefault(edge[2], edge)
            counts.append(len(seen) - before)
        assert rows_of(data) == list(seen.values())
        assert data.num_sampled_edges == counts


def test_edges_with_types() -> None:
    for batch in pipelines.heterogeneous():
        data, by_hop = batch.to_pyg_data(), batch.to_pyg_data(by_hop=True)
        for kind in ("user:likes:item", "item:liked_by:user", "user:knows:user"):
            own = {edge for hop in batch.sampled_subgraphs for edge in listed(hop, kind)}
            store, ends = by_hop[tuple(kind.split(":"))], data[tuple(kind.split(":"))]
            assert set(rows_of(store)) == own
            assert len(store.e_id) == len(own) == sum(store.num_sampled_edges)
            assert set(rows_of(ends)) <= own
            assert [*map(tuple, ends.edge_index.T.tolist())] == sorted({(source, column) for source, column, _ in own})


def test_edge_features_belong_to_their_edges() -> None:
    for by_hop in (False, True):
        store = next(iter(pipelines.heterogeneous())).to_pyg_data(by_hop)["user", "likes", "item"]
        assert len(store.e_id) > 50
        assert_same(store.edge_attr[:, 0], store.e_id)


def test_several_edge_features_keep_their_names() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.edge_features = [{"a": hop.original_edge_ids, "b": -hop.original_edge_ids} for hop in batch.sampled_subgraphs]
    data = batch.to_pyg_data()
    assert_same([data.a, data.b], [data.e_id, -data.e_id])


def test_parallel_edges_are_one_pair_of_nodes_and_two_edges() -> None:
    assert parallel().to_pyg_data().edge_index.tolist() == [[0, 1], [1, 0]]
    data = parallel().to_pyg_data(by_hop=True)
    assert sorted(rows_of(data)) == [(0, 1, 2), (1, 0, 0), (1, 0, 1)]
    assert data.num_sampled_edges == [3, 0]


def test_an_edge_that_is_drawn_twice_is_there_once() -> None:
    data = parallel(replace=True).to_pyg_data(by_hop=True)
    assert len(set(rows_of(data))) == len(rows_of(data)) <= 3


def test_without_ids_a_pair_of_nodes_is_an_edge() -> None:
    batch = parallel()
    for hop in batch.sampled_subgraphs or ():
        hop.original_edge_ids = None
    for by_hop in (False, True):
        data = batch.to_pyg_data(by_hop)
        assert sorted(data.edge_index.T.tolist()) == [[0, 1], [1, 0]]
        assert "e_id" not in data


def test_a_hop_without_edges() -> None:
    graph = gf.from_coo(torch.tensor([[0], [1]]), num_nodes=3)
    batch = next(iter(gf.ItemSampler(gf.ItemSet(torch.tensor([2]), names="seeds"), 1).sample_neighbor(graph, [2, 2])))
    for by_hop in (False, True):
        assert batch.to_pyg_data(by_hop).edge_index.shape == (2, 0)


def test_edges_that_are_gone_after_their_features_were_fetched_are_an_error() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.edge_features = [{"a": hop.original_edge_ids[1:]} for hop in batch.sampled_subgraphs]
    with pytest.raises(ValueError, match=r"edge feature 'a' has \d+ rows, but .* \d+ edges; put fetch_feature behind"):
        batch.to_pyg_data()


def test_pyg_trims_it_to_the_layer() -> None:
    trim = pytest.importorskip("torch_geometric.utils").trim_to_layer
    batch = next(iter(pipelines.homogeneous()))
    data = batch.to_pyg_data(by_hop=True)
    sizes = (data.num_sampled_nodes, data.num_sampled_edges)
    x, index, _ = trim(1, *sizes, data.x, data.edge_index)
    inner = batch.sampled_subgraphs[-1]
    assert_same(x, batch.node_features["feat"][: len(inner.original_row_node_ids)])
    assert_same(index, edge_index(inner.sampled_csc))


@pytest.mark.thorough
def test_it_takes_no_longer_than_sorting_a_few_times() -> None:
    count, nodes = 100_000, 30_000
    indices = torch.randint(nodes, (count,), generator=torch.Generator().manual_seed(0))
    indptr = torch.linspace(0, count, nodes // 3 + 1).to(torch.int64)
    ids = torch.arange(nodes)
    hop = gf.SampledSubgraph(gf.CSCFormatBase(indptr, indices), ids[: nodes // 3], ids, torch.arange(count))
    batch = gf.MiniBatch(seeds=ids[: nodes // 3], sampled_subgraphs=[hop], input_nodes=ids)

    def seconds(function: Callable[[], Any]) -> float:
        begin = time.thread_time()
        function()
        return time.thread_time() - begin

    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        keys = indices * nodes + edge_index(hop.sampled_csc)[1]
        sorting = min(seconds(lambda: torch.sort(keys, stable=True)) for _ in range(5))
        # It takes 3 times as long; torch.unique(dim=1) takes 100 times as long.
        assert min(seconds(batch.to_pyg_data) for _ in range(5)) < 20 * sorting
    finally:
        torch.set_num_threads(torch_threads)


def test_the_stage_gives_what_the_method_gives() -> None:
    for by_hop in (False, True):
        expected = digests(batch.to_pyg_data(by_hop) for batch in pipelines.heterogeneous())
        with gf.DataLoader(pipelines.heterogeneous().to_pyg_data(by_hop=by_hop), seed=0) as loader:
            assert digests(loader) == expected, by_hop
