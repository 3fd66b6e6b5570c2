"""Inputs of PyG programs: pairs of stores, and seeds."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import (
    ItemsAt,
    LinkNeighborLoader,
    LinkSeeds,
    NegativeSampling,
    NeighborLoader,
    NeighborSampler,
    NodeLoader,
    RandomNodeLoader,
    ShaDowKHopSampler,
)
from graphfeed.pyg.data import InputEdges, import_pyg, read_input_edges, tables_of
from tests.kinds.neighborhood import assert_true, homogeneous, values_of
from tests.kinds.stores import in_stores, sorted_data
from tests.stand_ins.emulated_cuda import Cuda, check_equal

KIND = ("user", "likes", "item")


def edge_stores(data: Any) -> Any:
    return [getattr(store, "edge_index", None) for store in data.edge_stores]


@pytest.mark.parametrize("typed", [False, True])
def test_each_loader_gives_what_it_gives_for_data(typed: bool) -> None:
    options: Any = {"batch_size": 24, "seed": 0}
    seeds: Any = "user" if typed else torch.arange(60)
    edges, negatives = (KIND if typed else None), NegativeSampling("binary", 1, strict=True)
    several: Any = {"user": [3, 4], "item": None} if typed else [5, 9]
    loaders: list[Any] = [
        lambda given: NeighborLoader(given, [3, 2], seeds, shuffle=True, **options),
        lambda given: NeighborLoader(given, [3, 2], several, time_attr="time", **options),
        lambda given: NodeLoader(given, NeighborSampler(given, [3], sample_direction="backward"), seeds, **options),
        lambda given: LinkNeighborLoader(given, [3, 2], edges, neg_sampling=negatives, **options),
        lambda given: RandomNodeLoader(given, 3, seed=0, shuffle=True),
    ]
    if not typed:
        loaders += [
            lambda given: NeighborLoader(given, [3], None, torch.arange(60), time_attr="edge_time", **options),
            lambda given: NeighborLoader(given, [3], seeds, weight_attr="weight", **options),
            lambda given: ShaDowKHopSampler(given, 2, 3, batch_size=4, seed=0),
        ]
    for layout, make in product(("csc", "csr", "coo"), loaders):
        data = sorted_data(typed, layout)
        ours, theirs = list(make(in_stores(data, layout))), list(make(data))
        assert [values_of(batch) for batch in ours] == [values_of(batch) for batch in theirs], layout
        assert sum(index.shape[1] for batch in ours for index in edge_stores(batch)) > 5
        assert_true(data, ours[0])


def test_data_may_be_their_own_stores() -> None:
    for typed in [False, True]:
        data = sorted_data(typed, "coo")
        pair, whole = (
            next(iter(NeighborLoader(given, [3, 2], "user" if typed else None, batch_size=9, seed=0)))
            for given in ((data, data), data)
        )
        for ours, theirs in zip(pair.node_stores, whole.node_stores, strict=True):
            assert torch.equal(ours.x, theirs.x)
            assert torch.equal(ours.n_id, theirs.n_id)
        assert [index.tolist() for index in edge_stores(pair)] == [index.tolist() for index in edge_stores(whole)]


def test_a_mini_batch_reads_the_rows_of_its_own_nodes_and_edges_and_no_more() -> None:
    for typed in [False, True]:
        data = sorted_data(typed, "coo")
        features, graph = in_stores(data, "coo")
        loader = NeighborLoader((features, graph), [2], "user" if typed else torch.arange(60), batch_size=3, seed=0)
        assert features.asked == []
        batch = next(iter(loader))
        sizes = {len(store.n_id) for store in batch.node_stores} | {len(store.e_id) for store in batch.edge_stores}
        assert {count for _, count in features.asked} <= sizes
        timed = in_stores(data, "coo")
        NeighborLoader(timed, [2], "user" if typed else torch.arange(60), time_attr="time")
        assert {name for name, count in timed[0].asked if count is None} == {"time"}


def test_mini_batches_are_of_the_class_that_is_wanted() -> None:
    base: Any = import_pyg("torch_geometric.data", "tests").HeteroData

    class Own(base):  # type: ignore[misc]
        pass

    data = sorted_data(True, "coo")
    sampler = NeighborSampler(in_stores(data, "coo"), [2])
    assert type(next(iter(NodeLoader(in_stores(data, "coo"), sampler, "user", custom_cls=Own)))) is Own


def test_sizes_come_from_the_edges_or_else_from_the_features() -> None:
    features, graph = in_stores(sorted_data(True, "coo"), "coo")
    for attr in graph.get_all_edge_attrs():
        index = graph.get_edge_index(attr)
        graph.remove_edge_index(attr)
        graph.put_edge_index(index, edge_type=attr.edge_type, layout="coo")
    found = tables_of((features, graph))
    assert {kind: found.count_nodes(kind) for kind in found.nodes} == {"user": 40, "item": 25}


def test_of_several_layouts_the_columns_are_read() -> None:
    data = sorted_data(False, "csc")
    features, graph = in_stores(data, "csc")
    graph.put_edge_index(tuple(data.edge_index.flip(1)), edge_type=None, layout="coo", size=(60, 60))
    edges = tables_of((features, graph)).edges[None].edge_list(reverse=False)
    assert torch.equal(torch.stack(edges.ends()), data.edge_index)


def test_features_of_an_untyped_graph_may_have_any_one_group_name() -> None:
    features, graph = in_stores(sorted_data(False, "coo"), "coo")
    renamed = type(features)()
    for attr in features.get_all_tensor_attrs():
        group = attr.group_name if isinstance(attr.group_name, tuple) else "paper"
        attr.index = None
        renamed.put_tensor(features.get_tensor(attr), group_name=group, attr_name=attr.attr_name, index=None)
    batches = [next(iter(NeighborLoader((given, graph), [2], batch_size=9, seed=0))) for given in (features, renamed)]
    assert batches[0].keys() == batches[1].keys()
    assert torch.equal(batches[0].x, batches[1].x)


def test_features_of_edges_in_the_group_of_the_nodes_are_known_by_their_name_and_rows() -> None:
    data = sorted_data(False, "csc")
    del data.weight
    pairs = [in_stores(data, "csc"), in_stores(data, "csc", None)]
    for options in ({}, {"time_attr": "edge_time", "input_time": torch.arange(60)}, {"weight_attr": "edge_time"}):
        first, second = (
            [
                values_of(batch)
                for batch in NeighborLoader(pair, [3, 2], torch.arange(60), batch_size=24, seed=0, **options)
            ]
            for pair in pairs
        )
        assert first == second
        assert all("edge_attr" in batch and "edge_time" in batch for batch in first)


def test_arrays_become_tensors() -> None:
    features, graph = in_stores(sorted_data(False, "coo"), "coo")
    base: Any = type(features)

    class Arrays(base):  # type: ignore[misc]
        def _get_tensor(self, attr: Any) -> Any:
            return np.asarray(super()._get_tensor(attr))

    arrays = Arrays()
    arrays.store.update(features.store)
    first, second = (next(iter(NeighborLoader((own, graph), [2], batch_size=9, seed=0))) for own in (features, arrays))
    assert values_of(first) == values_of(second)


def test_without_types_the_type_may_be_none() -> None:
    data = homogeneous()
    some = torch.tensor([[1, 2], [3, 4]])
    for given, pairs in (((None, some), [[1, 3], [2, 4]]), ((None, None), data.edge_index.T.tolist())):
        items: Any = read_input_edges(data, InputEdges(given), None).items
        assert items[:][0].tolist() == pairs


def test_labels_are_raised_only_if_the_least_is_exactly_0() -> None:
    nan = torch.full((200,), float("nan"))
    cases: list[tuple[Any, torch.Tensor]] = [
        (torch.linspace(0.25, 0.75, 200), torch.linspace(0.25, 0.75, 200)),
        (torch.linspace(-0.5, 1, 200), torch.linspace(-0.5, 1, 200)),
        (torch.linspace(0, 0.75, 200), torch.linspace(0, 0.75, 200) + 1),
        (nan, nan),
        ([0, 1] * 100, torch.tensor([1, 2] * 100)),
        (np.array([0, 1] * 100), torch.tensor([1, 2] * 100)),
    ]
    for labels, expected in cases:
        found: Any = read_input_edges(homogeneous(), InputEdges(labels=labels), NegativeSampling("binary")).items
        assert torch.allclose(found[:][2], expected, equal_nan=True), labels


def turn(minibatch: gf.MiniBatch, disjoint: bool = False, triplets: int = 0) -> Any:
    result: Any
    (result,) = LinkSeeds(gf.IterableSource([minibatch]), disjoint, triplets)
    return result


def test_nodes_are_unique_and_sorted() -> None:
    result = turn(gf.MiniBatch(seeds=torch.tensor([[5, 2], [2, 9]])))
    assert result.seeds.tolist() == [2, 5, 9]
    assert result.of_seeds is not None
    assert result.of_seeds[None]["edge_label_index"].tolist() == [[1, 0], [0, 2]]
    assert result.trees is None


def test_negatives_share_the_tree_of_their_positive() -> None:
    seeds, indexes = torch.tensor([[5, 2], [2, 9], [5, 7], [2, 8]]), torch.tensor([0, 1, 0, 1])
    minibatch = gf.MiniBatch(seeds=seeds, indexes=indexes, timestamp=torch.tensor([30, 40]))
    pairs = turn(minibatch, disjoint=True)
    assert pairs.seeds.tolist() == [5, 2, 5, 2, 2, 9, 7, 8]
    assert pairs.trees.tolist() == [0, 1, 0, 1] * 2
    assert pairs.timestamp.tolist() == [30, 40, 30, 40] * 2
    triplets = turn(minibatch, disjoint=True, triplets=1)
    assert triplets.seeds.tolist() == [5, 2, 2, 9, 7, 8]
    assert triplets.of_seeds is not None
    assert triplets.of_seeds[None]["dst_neg_index"].tolist() == [4, 5]


@pytest.mark.parametrize("disjoint", [False, True])
def test_seed_edges_may_be_on_a_gpu(cuda: Cuda, disjoint: bool) -> None:
    given = {"seeds": torch.tensor([[5, 2], [2, 9], [5, 7], [2, 8]]), "indexes": torch.tensor([0, 1, 0, 1])}
    wanted = turn(gf.MiniBatch(**given), disjoint)
    with cuda.running():
        found = turn(gf.MiniBatch(**{name: cuda.put(values) for name, values in given.items()}), disjoint)
        check_equal(cuda, found.seeds, wanted.seeds)


def test_items_are_those_at_the_positions_and_the_key_stays() -> None:
    items = gf.ItemSet((torch.arange(10, 20), torch.arange(5, 15)), names=("seeds", "labels"))
    source = gf.ItemSampler(gf.ItemSet([3, 0, 9], names="seeds"), 2)
    batches: Any = list(ItemsAt(source, items, gf.minibatcher_default))
    assert [batch.seeds.tolist() for batch in batches] == [[13, 10], [19]]
    assert [batch.labels.tolist() for batch in batches] == [[8, 5], [14]]
    assert [batch.key.index for batch in batches] == [0, 1]
