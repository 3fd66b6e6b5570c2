"""Properties of all PyG loaders: the interface, and equal mini-batches with any workers, in each epoch."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import pytest
import torch

from graphfeed import ProcessExecutor, pyg
from graphfeed.pyg import (
    ClusterData,
    ClusterLoader,
    GraphSAINTNodeSampler,
    NeighborLoader,
    NeighborSampler,
    RandomNodeLoader,
    ShaDowKHopSampler,
    ZipLoader,
)
from tests.kinds.neighborhood import around, assert_is, events, heterogeneous, homogeneous, values_of
from tests.kinds.stores import in_stores, sorted_data


def test_a_mini_batch_of_some_seeds() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [-1], torch.tensor([9, 4, 7]), num_workers=2)
    for given in ([0, 2], torch.tensor([0, 2])):
        batch = loader(given)
        assert_is(batch, around(data, {"": [9, 7]}, 1))
        assert batch.input_id.tolist() == [0, 2]


def test_pygs_prefetch_loader_takes_it() -> None:
    data = homogeneous()
    theirs = import_module("torch_geometric.loader").PrefetchLoader
    loader = NeighborLoader(data, [-1], torch.arange(7), batch_size=3)
    found = list(theirs(loader, torch.device("cpu")))
    assert [batch.input_id.tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert_is(found[1], around(data, {"": [3, 4, 5]}, 1))


def test_its_draws_are_random() -> None:
    loader = NeighborLoader(homogeneous(), [2], seed=1)
    found = {tuple(loader(range(60)).e_id.tolist()) for _ in range(5)}
    assert len(found) > 1


def test_it_says_what_torchs_loader_says_of_its_seeds() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), batch_size=2, drop_last=True)
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), 2, True)
    assert loader.node_sampler.num_neighbors == [2]
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), sampler=[2, 0], batch_size=2)
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), 2, False)
    loader = NeighborLoader(data, [2], torch.tensor([9, 4, 7]), batch_sampler=[[2, 0], [1]])
    assert (loader.dataset, loader.batch_size, loader.drop_last) == (range(3), None, False)
    zipped = ZipLoader([loader, NeighborLoader(data, [2], torch.tensor([5, 6]))], batch_size=2)
    assert (zipped.dataset, zipped.batch_size) == (range(2), 2)


def test_a_copy_goes_on_with_workers_of_its_own() -> None:
    copies: list[tuple[Any, int]] = [(copy.deepcopy, 1), (lambda loader: pickle.loads(pickle.dumps(loader)), 0)]
    for copied, num_workers in copies:
        options: Any = {"batch_size": 25, "shuffle": True, "num_workers": num_workers, "seed": 0}
        with NeighborLoader(homogeneous(), [2], **options) as loader:
            next(iter(loader))  # an epoch is running, and workers have started
            with copied(loader) as other:
                assert other.state_dict() == loader.state_dict()
                assert [batch.e_id.tolist() for batch in other] == [batch.e_id.tolist() for batch in loader]
                other.data.y += 1
                assert int(next(iter(other)).y.max()) == 60
                assert int(loader.data.y.max()) == 59


def test_contexts_of_pygs_workers_are_there() -> None:
    loader = NeighborLoader(homogeneous(), [2], num_workers=1, batch_size=30)
    with loader.enable_multithreading(2), loader.enable_cpu_affinity([0]):
        assert len(list(loader)) == 2


def test_inference_layer_by_layer_takes_pygs_loader_with_our_sampler() -> None:
    data = homogeneous()
    model = import_module("torch_geometric.nn").GraphSAGE(data.x.shape[1], 4, num_layers=2, out_channels=3).eval()
    theirs = import_module("torch_geometric.loader").NeighborLoader
    loader = theirs(data, [-1], neighbor_sampler=NeighborSampler(data, [-1]), batch_size=7)
    with torch.no_grad():
        found, wanted = model.inference(loader), model(data.x, data.edge_index)
    torch.testing.assert_close(found, wanted)


def test_an_epoch_holds_the_attributes_that_the_data_have_when_it_begins() -> None:
    for num_workers in [0, 1]:
        data, typed = homogeneous(), heterogeneous()
        for given, store, seeds in ((data, data, None), (typed, typed["user"], "user")):
            with NeighborLoader(given, [2], seeds, seed=0, batch_size=20, num_workers=num_workers) as loader:
                before = next(iter(loader))
                del store.x
                store.num_nodes, store.extra, given.note = len(store.y), store.y * 2, "new"
                batches = [next(iter(loader)), loader([3, 4])]
                for batch in batches:
                    own = batch if store is given else batch[seeds]
                    assert "x" not in own
                    assert torch.equal(own.extra, own.n_id * 2)
                    assert torch.equal(own.y, own.n_id)
                    assert batch.note == "new"
                loader.set_epoch(0)
                again = next(iter(loader))
                assert [store.e_id.tolist() for store in again.edge_stores] == [
                    store.e_id.tolist() for store in before.edge_stores
                ]


def test_loaders_of_subgraphs_notice_changes_of_the_data_too() -> None:
    data, clusters = homogeneous(), ClusterData(homogeneous(), 2)
    del data.y
    loaders = [
        RandomNodeLoader(data, 2),
        ShaDowKHopSampler(data, 1, 2, batch_size=9),
        GraphSAINTNodeSampler(data, 20, sample_coverage=1),
        ClusterLoader(clusters),
    ]
    before = [next(iter(loader)) for loader in loaders]
    data.y = torch.arange(60)
    del data.edge_attr, clusters.data.edge_attr
    clusters.data.y = clusters.partition.node_perm + 100
    for loader, old in zip(loaders, before, strict=True):
        assert "edge_attr" in old
        batch = next(iter(loader))
        assert "edge_attr" not in batch
        ids = batch.n_id[batch.root_n_id] if "root_n_id" in batch else batch.n_id
        assert torch.equal(batch.y, ids + (100 if isinstance(loader, ClusterLoader) else 0))
        assert set(batch.keys()) == set(old.keys()) - {"edge_attr"} | {"y"}


def test_a_feature_that_a_store_got_since_is_there() -> None:
    features, graph = in_stores(sorted_data(False, "coo"), "coo")
    loader = NeighborLoader((features, graph), [2], batch_size=20)
    assert "late" not in next(iter(loader))
    features.put_tensor(torch.arange(60), group_name=None, attr_name="late", index=None)
    batch = next(iter(loader))
    assert torch.equal(batch.late, batch.n_id)


SAINT: dict[str, Any] = {"num_steps": 5, "sample_coverage": 3}
EITHER: Any = {"user": None, "item": None}
WINDOW = {"user": torch.arange(40) % 11, "item": 9}


def drop_some(output: Any) -> Any:
    kept = torch.rand(len(output.row)) < 0.5
    output.row, output.col, output.edge = output.row[kept], output.col[kept], output.edge[kept]
    return output


def add_noise(data: Any) -> Any:
    data.noise = torch.rand(3)
    return data


def nodes(**options: Any) -> Any:
    return partial(pyg.NeighborLoader, homogeneous(), [3, 2], shuffle=True, **{"batch_size": 20, **options})


def typed(seeds: Any = "user", **options: Any) -> Any:
    return partial(pyg.NeighborLoader, heterogeneous(), [2, 2], seeds, shuffle=True, batch_size=10, **options)


def links(**options: Any) -> Any:
    return partial(pyg.LinkNeighborLoader, homogeneous(), [2, 2], shuffle=True, **{"batch_size": 30, **options})


def in_time(name: str) -> Any:
    return nodes(input_time=torch.arange(60), time_attr=name)


def balanced(**options: Any) -> Any:
    data = homogeneous()
    return pyg.NeighborLoader(data, [1], sampler=pyg.ImbalancedSampler(data.y // 40), batch_size=8, **options)


def sampled(**options: Any) -> Any:
    sampler = torch.utils.data.WeightedRandomSampler([1.0] * 60, 30)
    return pyg.NeighborLoader(homogeneous(), [1], sampler=sampler, batch_size=8, **options)


def batched(**options: Any) -> Any:
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(range(60)), 7, drop_last=False)
    return pyg.NeighborLoader(homogeneous(), [1], batch_sampler=sampler, **options)


def stored(**options: Any) -> Any:
    pair = in_stores(sorted_data(True, "csc"), "csc")
    return pyg.NeighborLoader(pair, [3, 2], "item", batch_size=8, shuffle=True, **options)


def zipped(**options: Any) -> Any:
    loaders = [nodes()(), nodes()(), links()()]
    return pyg.ZipLoader(loaders, batch_size=16, shuffle=True, **options)


LOADERS: dict[str, Callable[..., Any]] = {
    "nodes": nodes(transform=add_noise),
    "nodes, function of the output": nodes(transform_sampler_output=drop_some),
    "nodes, disjoint": nodes(disjoint=True),
    "nodes, weights, induced": nodes(weight_attr="weight", subgraph_type="induced"),
    "nodes, node times": in_time("time"),
    "nodes, edge times": in_time("edge_time"),
    "nodes, edges in PyG's own kind of tensor": nodes(as_edge_index=True),
    "nodes, balanced": balanced,
    "nodes, torch's sampler": sampled,
    "nodes, torch's sampler of mini-batches": batched,
    "nodes of types": typed(),
    "nodes of types, in stores": stored,
    "nodes of types, in stores, fetched by workers": partial(stored, filter_per_worker=True),
    "nodes of types, disjoint": typed(disjoint=True),
    "nodes of types, induced": typed(subgraph_type="induced"),
    "nodes of types, times": typed(time_attr="time"),
    "nodes of types, windows": typed(EITHER, time_attr="time", time_window=WINDOW),
    "links": links(),
    "links, binary": links(neg_sampling="binary"),
    "links, triplets": links(neg_sampling=("triplet", 2), disjoint=True),
    "links, without the edges of seeds": links(exclude_seed_edges="reverse"),
    "hgt": partial(pyg.HGTLoader, heterogeneous(), [2, 3], "user", batch_size=9, shuffle=True),
    "clusters": partial(pyg.ClusterLoader, pyg.ClusterData(homogeneous(), 9), batch_size=2, shuffle=True),
    "saint, nodes": partial(pyg.GraphSAINTNodeSampler, homogeneous(), 8, **SAINT),
    "saint, nodes by type": partial(pyg.GraphSAINTNodeSampler, heterogeneous(), 8, **SAINT),
    "saint, edges": partial(pyg.GraphSAINTEdgeSampler, homogeneous(), 8, **SAINT),
    "saint, walks": partial(pyg.GraphSAINTRandomWalkSampler, homogeneous(), 8, 2, **SAINT),
    "parts": partial(pyg.RandomNodeLoader, heterogeneous(), 5, shuffle=True),
    "roots": partial(pyg.ShaDowKHopSampler, homogeneous(), 2, 2, batch_size=9, shuffle=True),
    "events": partial(pyg.TemporalDataLoader, events(), 7, 1.0),
    "several": zipped,
}


def epoch(loader: Any) -> list[Any]:
    return [[values_of(part) for part in (batch if isinstance(batch, tuple) else [batch])] for batch in loader]


def test_workers_make_no_difference_and_an_epoch_goes_on_in_the_middle() -> None:
    for name in LOADERS:
        inline, begun = (LOADERS[name](seed=5) for _ in range(2))
        whole, after = epoch(inline), epoch(inline)
        assert whole != after
        list(islice(begun, 2))
        for num_workers in (1, 3):
            with LOADERS[name](seed=5, num_workers=num_workers) as loader:
                assert [epoch(loader), epoch(loader)] == [whole, after]
                loader.load_state_dict(begun.state_dict())
                assert epoch(loader) == whole[2:]


@pytest.mark.slow
def test_worker_processes_make_no_difference() -> None:
    with ProcessExecutor(1) as executor:
        for name, make in LOADERS.items():
            with make(seed=5, num_workers=1, executor=executor) as loader:
                assert epoch(loader) == epoch(make(seed=5)), name


@pytest.mark.slow
def test_a_loader_has_processes_of_its_own() -> None:
    with stored(seed=5, num_workers=2, worker="process") as loader:
        assert epoch(loader) == epoch(stored(seed=5))
