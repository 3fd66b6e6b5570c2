"""Loaders of induced subgraphs: around roots, of random parts, and of so many nodes of each type."""

from typing import Any

import pytest
import torch

from graphfeed import ItemSampler, ItemSet, SamplingGraph, from_coo
from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.pyg import HGTLoader, HGTSampler, InduceTrees, RandomNodeLoader, ShaDowKHopSampler, ToRootedBatch
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import KINDS, around, assert_true, heterogeneous, homogeneous

ROOTS = torch.tensor([9, 4, 9, 7])


def parts_of(data: Any, batch: Any) -> list[tuple[list[int], set[int]]]:
    """Return the nodes and the edges of each subgraph, after a look at whether they join what they should."""
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    parts = []
    for place in range(len(batch.ptr) - 1):
        nodes = batch.n_id[batch.ptr[place] : batch.ptr[place + 1]].tolist()
        assert set(batch.batch[batch.ptr[place] : batch.ptr[place + 1]].tolist()) == {place}
        edges = batch.e_id[batch.batch[batch.edge_index[0]] == place].tolist()
        assert len(edges) == len(set(edges))
        parts.append((nodes, set(edges)))
    return parts


def induced(data: Any, nodes: list[int]) -> set[int]:
    pairs = data.edge_index.T.tolist()
    return {edge for edge, (source, end) in enumerate(pairs) if source in nodes and end in nodes}


def test_all_neighbours_give_the_induced_subgraph_around_each_root() -> None:
    data = homogeneous()
    (batch,) = ShaDowKHopSampler(data, 2, -1, ROOTS, batch_size=4)
    for root, (nodes, edges) in zip(ROOTS.tolist(), parts_of(data, batch), strict=True):
        assert nodes == around(data, {"": [root]}, 2).nodes[""]
        assert edges == induced(data, nodes)
    assert batch.n_id[batch.root_n_id].tolist() == ROOTS.tolist()
    assert batch.y.tolist() == ROOTS.tolist()
    assert batch.input_id.tolist() == [0, 1, 2, 3]
    assert (batch.num_graphs, batch.num_nodes, batch.name) == (4, len(batch.n_id), "random")
    assert type(batch).__name__ == "DataBatch"


@pytest.mark.parametrize("replace", [False, True])
def test_as_many_neighbours_as_asked_for_are_sampled(replace: bool) -> None:
    data = homogeneous()
    sizes = []
    for batch in ShaDowKHopSampler(data, 2, 2, batch_size=20, replace=replace, seed=2):
        for nodes, edges in parts_of(data, batch):
            whole = around(data, {"": nodes[:1]}, 2).nodes[""]
            assert set(nodes) <= set(whole)
            assert edges == induced(data, nodes)
            sizes.append(len(nodes))
    assert len(sizes) == 60
    assert 4 < max(sizes) <= 7


def test_roots_may_be_a_mask() -> None:
    data = homogeneous()
    roots = [batch.n_id[batch.root_n_id].tolist() for batch in ShaDowKHopSampler(data, 1, 1, data.train_mask)]
    assert roots == [[node] for node in range(0, 60, 3)]


def test_labels_that_are_not_those_of_nodes_stay() -> None:
    data = homogeneous()
    data.y = torch.tensor([5.0, 6.0])
    assert next(iter(ShaDowKHopSampler(data, 1, 1))).y.tolist() == [5, 6]


GRAPH = from_coo(([1, 2, 2, 0], [0, 0, 1, 2]), num_nodes=3)


class OneHopGraph(SamplingGraph):
    """A graph of a user's own, which samples one hop."""

    num_nodes, num_edges = GRAPH.num_nodes, GRAPH.num_edges

    def sample_neighbors(self, *args: Any, **kwargs: Any) -> Any:
        return GRAPH.sample_neighbors(*args, **kwargs)


@pytest.mark.parametrize("graph", [GRAPH, OneHopGraph()], ids=["in memory", "of a user's own"])
def test_an_edge_is_there_in_each_tree_that_has_both_of_its_ends(graph: SamplingGraph) -> None:
    pipe = ItemSampler(ItemSet([0, 1], names="seeds"), 2).sample_neighbor(graph, [-1], only_new=True, disjoint=True)
    (batch,) = InduceTrees(pipe, graph)
    output = batch.output
    assert output.node.tolist() == [0, 1, 2, 1, 2]
    assert output.batch.tolist() == [0, 0, 0, 1, 1]
    pairs = sorted(zip(output.edge.tolist(), output.row.tolist(), output.col.tolist(), strict=True))
    assert pairs == [(0, 1, 0), (1, 2, 0), (2, 2, 1), (2, 4, 3), (3, 0, 2)]


def test_a_root_without_neighbours_is_alone() -> None:
    graph = from_coo((torch.tensor([0]), torch.tensor([1])), num_nodes=2)
    pipe = ItemSampler(ItemSet([0], names="seeds"), 1).sample_neighbor(graph, [-1], only_new=True, disjoint=True)
    (batch,) = InduceTrees(pipe, graph)
    assert batch.output.node.tolist() == [0]
    assert batch.output.row.tolist() == []


def test_roots_are_where_the_parts_begin() -> None:
    data = import_pyg("torch_geometric.data", "tests").Data(
        x=torch.eye(3), y=torch.tensor([7, 8, 9]), batch=torch.tensor([0, 0, 1]), batch_size=2
    )
    for of_roots, labels in ((True, [7, 9]), (False, [7, 8, 9])):
        (batch,) = ToRootedBatch(IterableSource([data]), of_roots)
        assert (batch.ptr.tolist(), batch.root_n_id.tolist(), batch.num_graphs) == ([0, 2, 3], [0, 2], 2)
        assert batch.y.tolist() == labels
        assert torch.equal(batch.x, data.x)


@pytest.mark.parametrize("make", [homogeneous, heterogeneous])
def test_parts_are_those_of_pyg_in_order(make: Any) -> None:
    data, theirs = make(), import_pyg("torch_geometric.loader", "tests").RandomNodeLoader
    ours = RandomNodeLoader(data, 7)
    assert len(ours) == 7
    for own, other in zip(ours, theirs(data, 7), strict=True):
        assert_true(data, own)
        for store, wanted in zip(own.node_stores, other.node_stores, strict=True):
            for name in {"x", "y", "train_mask", "time"} & set(wanted.keys()):
                assert torch.equal(store[name], wanted[name])
        for store, wanted in zip(own.edge_stores, other.edge_stores, strict=True):
            order = store.e_id.argsort()
            assert store.edge_index[:, order].tolist() == wanted.edge_index.tolist()
            assert store.edge_attr[order].tolist() == wanted.edge_attr.tolist()


def test_shuffled_parts_have_each_node_once_and_all_edges_inside() -> None:
    data, found = homogeneous(), []
    for batch in RandomNodeLoader(data, 3, shuffle=True, seed=1):
        assert_true(data, batch)
        inside = torch.isin(data.edge_index, batch.n_id).all(dim=0).nonzero().squeeze(1)
        assert batch.e_id.sort().values.tolist() == inside.tolist()
        found += batch.n_id.tolist()
    assert found != sorted(found)
    assert sorted(found) == list(range(60))


NUMBERS = {"user": [3, 4], "item": [2, 5]}


def test_a_batch_has_so_many_nodes_of_each_type_and_all_edges_among_them() -> None:
    data = heterogeneous()
    loader = HGTLoader(data, NUMBERS, ("user", torch.arange(0, 40, 3)), batch_size=4, seed=1)
    for batch in loader:
        assert_true(data, batch)
        size = batch["user"].batch_size
        assert batch["user"].n_id[:size].tolist() == (3 * batch["user"].input_id).tolist()
        assert batch["user"].y.tolist() == batch["user"].n_id.tolist()
        assert (batch["user"].num_nodes, batch["item"].num_nodes) == (size + 7, 7)
        for edge_type in KINDS:
            ends = zip(data[edge_type].edge_index, edge_type[::2], strict=True)
            inside = torch.stack([torch.isin(ids, batch[kind].n_id) for ids, kind in ends]).all(dim=0)
            assert batch[edge_type].e_id.sort().values.tolist() == inside.nonzero().squeeze(1).tolist()


def test_with_room_for_all_it_is_all_that_is_around_the_seeds() -> None:
    data = heterogeneous()
    (batch,) = HGTLoader(data, [1000], ("user", torch.tensor([7])))
    leading = [data[kind].edge_index[0][data[kind].edge_index[1] == 7] for kind in KINDS if kind[2] == "user"]
    assert sorted(batch["item"].n_id.tolist()) == leading[0].unique().tolist()
    assert sorted(batch["user"].n_id.tolist()) == sorted({7, *leading[1].tolist()})


def test_a_function_sees_the_samplers_output_before_features_are_fetched() -> None:
    def drop_items(output: Any) -> Any:
        output.node["item"] = output.node["item"][:0]
        return output

    batch = next(iter(HGTLoader(heterogeneous(), NUMBERS, "user", batch_size=9, transform_sampler_output=drop_items)))
    assert len(batch["item"].x) == 0
    assert len(batch["user"].x) == 9 + 7


def test_pygs_own_node_loader_takes_it() -> None:
    data = heterogeneous()
    assert issubclass(HGTSampler, import_pyg("torch_geometric.sampler", "tests").BaseSampler)
    loader = import_pyg("torch_geometric.loader", "tests").NodeLoader
    seeds = torch.tensor([4, 9])
    (batch,) = loader(data, HGTSampler(data, [6, 6]), ("user", seeds), batch_size=2)
    assert_true(data, batch)
    assert batch["user"].n_id[:2].tolist() == seeds.tolist()
    assert batch["user"].num_nodes > 8
    assert batch["item"].num_nodes > 6
