"""Inputs of PyG programs: pairs of stores, and seeds."""

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
from graphfeed.pyg.data.inputs import InputEdges, InputNodes, read_input_edges, read_input_nodes
from graphfeed.pyg.data.store_data import StoreFeature
from graphfeed.pyg.data.tables import import_pyg, tables_of
from tests.pyg.neighborhood import assert_true, heterogeneous, homogeneous, values_of
from tests.pyg.stores import counting_store, in_stores, sorted_data

KIND = ("user", "likes", "item")
CASES = [
    (False, "csc"),
    (False, "csr"),
    (True, "csc"),
    pytest.param(False, "coo", marks=pytest.mark.thorough),
    pytest.param(True, "coo", marks=pytest.mark.thorough),
    pytest.param(True, "csr", marks=pytest.mark.thorough),
]


def edge_stores(data: Any) -> Any:
    return [getattr(store, "edge_index", None) for store in data.edge_stores]


@pytest.mark.parametrize(("typed", "layout"), CASES)
def test_each_loader_gives_what_it_gives_for_data(typed: bool, layout: str) -> None:
    data = sorted_data(typed, layout)
    pair = in_stores(data, layout)
    seeds: Any = "user" if typed else torch.arange(60)
    edges, negatives = (KIND if typed else None), NegativeSampling("binary", 1, strict=True)
    several: Any = {"user": [3, 4], "item": None} if typed else [5, 9]
    loaders: list[Any] = [
        lambda given: NeighborLoader(given, [3, 2], seeds, batch_size=24, seed=0, shuffle=True),
        lambda given: NeighborLoader(given, [3, 2], several, batch_size=24, seed=0, time_attr="time"),
        lambda given: NodeLoader(
            given, NeighborSampler(given, [3], sample_direction="backward"), seeds, batch_size=24, seed=0
        ),
        lambda given: LinkNeighborLoader(given, [3, 2], edges, batch_size=24, seed=0, neg_sampling=negatives),
        lambda given: RandomNodeLoader(given, 3, seed=0, shuffle=True),
    ]
    if not typed:
        times = torch.arange(60)
        loaders += [
            lambda given: NeighborLoader(given, [3], None, times, batch_size=24, seed=0, time_attr="edge_time"),
            lambda given: NeighborLoader(given, [3], seeds, batch_size=24, seed=0, weight_attr="weight"),
            lambda given: ShaDowKHopSampler(given, 2, 3, batch_size=4, seed=0),
        ]
    for make in loaders:
        ours, theirs = list(make(pair)), list(make(data))
        assert [values_of(batch) for batch in ours] == [values_of(batch) for batch in theirs]
        assert sum(index.shape[1] for batch in ours for index in edge_stores(batch)) > 5
        assert_true(data, ours[0])


@pytest.mark.parametrize("typed", [False, True])
def test_data_may_be_their_own_stores(typed: bool) -> None:
    data = sorted_data(typed, "coo")
    pair, whole = (
        next(iter(NeighborLoader(given, [3, 2], "user" if typed else None, batch_size=9, seed=0)))
        for given in ((data, data), data)
    )
    for ours, theirs in zip(pair.node_stores, whole.node_stores, strict=True):
        assert torch.equal(ours.x, theirs.x)
        assert torch.equal(ours.n_id, theirs.n_id)
    assert [index.tolist() for index in edge_stores(pair)] == [index.tolist() for index in edge_stores(whole)]


@pytest.mark.parametrize("typed", [False, True])
def test_a_mini_batch_reads_the_rows_of_its_own_nodes_and_edges_and_no_more(typed: bool) -> None:
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


def feature(values: Any, store: Any = None) -> StoreFeature:
    store = store or counting_store()
    store.put_tensor(values, group_name="paper", attr_name="x", index=None)
    return StoreFeature(store, import_pyg("torch_geometric.data", "tests").TensorAttr("paper", "x"))


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


def test_rows_come_in_the_order_of_the_ids() -> None:
    found = feature(torch.arange(6).reshape(3, 2))
    assert found.read(torch.tensor([2, 0, 2], dtype=torch.int32)).tolist() == [[4, 5], [0, 1], [4, 5]]
    assert found.read().shape == (3, 2)
    assert found.read(torch.empty(0, dtype=torch.int64)).shape == (0, 2)
    assert (found.size(), found.count()) == (torch.Size([2]), 3)
    assert not found.may_read_in_threads()


def test_arrays_become_tensors() -> None:
    base: Any = import_pyg("torch_geometric.testing", "tests").MyFeatureStore

    class Arrays(base):  # type: ignore[misc]
        def _get_tensor(self, attr: Any) -> Any:
            return np.asarray(super()._get_tensor(attr))

    found = feature(torch.arange(3.0), Arrays())
    assert found.read(torch.tensor([1])).tolist() == [1.0]
    assert found.read().tolist() == [0.0, 1.0, 2.0]


def test_it_is_only_read() -> None:
    with pytest.raises(TypeError, match=r"is read-only here; call update_tensor\(\)"):
        feature(torch.arange(3)).update(torch.arange(3))


def test_given_edges_and_all_of_a_type() -> None:
    data = heterogeneous()
    some = torch.tensor([[1, 2], [3, 4]])
    for given, pairs in (
        (KIND, data[KIND].edge_index.T.tolist()),
        ((KIND, None), data[KIND].edge_index.T.tolist()),
        ((KIND, some), [[1, 3], [2, 4]]),
        (("user", "item"), data[KIND].edge_index.T.tolist()),
    ):
        found = read_input_edges(data, InputEdges(given), None)
        assert found.input_type == KIND
        assert found.items[:]["user:likes:item"][0].tolist() == pairs


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


def test_ids_masks_and_all() -> None:
    data = homogeneous()
    for given, seeds, ids in (
        (None, list(range(60)), list(range(60))),
        (torch.tensor([9, 4]), [9, 4], [0, 1]),
        ([9, 4], [9, 4], [0, 1]),
        (data.train_mask, list(range(0, 60, 3)), list(range(0, 60, 3))),
    ):
        items: Any = read_input_nodes(data, InputNodes(given)).items
        assert [part.tolist() for part in items[:]] == [seeds, ids]


def test_nodes_with_types() -> None:
    data = heterogeneous()
    for given, seeds in (
        ("item", {"item": list(range(25))}),
        (("item", None), {"item": list(range(25))}),
        (("user", torch.tensor([3, 1])), {"user": [3, 1]}),
        (("user", torch.arange(40) == 5), {"user": [5]}),
        ({"user": [2], "item": [1, 0]}, {"user": [2], "item": [1, 0]}),
    ):
        found = read_input_nodes(data, InputNodes(given))
        assert {kind: rows[0].tolist() for kind, rows in found.items[:].items()} == seeds
        assert found.input_type == (next(iter(seeds)) if len(seeds) == 1 else None)


def test_times_are_given_or_the_nodes_own() -> None:
    data, seeds = homogeneous(), torch.tensor([9, 4])
    given: Any = read_input_nodes(data, InputNodes(seeds, torch.tensor([70, 71]))).items
    own: Any = read_input_nodes(data, InputNodes(seeds, node_times=data.time)).items
    assert given[:][2].tolist() == [70, 71]
    assert own[:][2].tolist() == data.time[seeds].tolist()


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


def test_items_are_those_at_the_positions_and_the_key_stays() -> None:
    items = gf.ItemSet((torch.arange(10, 20), torch.arange(5, 15)), names=("seeds", "labels"))
    source = gf.ItemSampler(gf.ItemSet([3, 0, 9], names="seeds"), 2)
    batches: Any = list(ItemsAt(source, items, gf.minibatcher_default))
    assert [batch.seeds.tolist() for batch in batches] == [[13, 10], [19]]
    assert [batch.labels.tolist() for batch in batches] == [[8, 5], [14]]
    assert [batch.key.index for batch in batches] == [0, 1]
