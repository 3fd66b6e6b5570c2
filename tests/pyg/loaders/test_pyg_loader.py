import copy
import pickle
from importlib import import_module
from typing import Any

import pytest
import torch

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
from tests.pyg.neighborhood import around, assert_is, heterogeneous, homogeneous
from tests.pyg.stores import in_stores, sorted_data


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


def test_what_it_was_made_of_is_there() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2])
    assert loader.data is data
    assert loader.pipeline is loader.plan.written


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


@pytest.mark.parametrize(
    ("copied", "num_workers"), [(copy.deepcopy, 1), (lambda loader: pickle.loads(pickle.dumps(loader)), 0)]
)
def test_a_copy_goes_on_with_workers_of_its_own(copied: Any, num_workers: int) -> None:
    options: Any = {"batch_size": 25, "shuffle": True, "num_workers": num_workers, "seed": 0}
    with NeighborLoader(homogeneous(), [2], **options) as loader:
        next(iter(loader))  # an epoch is running, and workers are there
        with copied(loader) as other:
            assert other.state_dict() == loader.state_dict()
            assert [batch.e_id.tolist() for batch in other] == [batch.e_id.tolist() for batch in loader]
            other.data.y += 1
            assert int(next(iter(other)).y.max()) == 60
            assert int(loader.data.y.max()) == 59


def test_it_prints_as_pygs() -> None:
    data = homogeneous()
    loaders = [NeighborLoader(data, [2], num_workers=2), RandomNodeLoader(data, 2)]
    assert [str(loader) for loader in loaders] == ["NeighborLoader()", "RandomNodeLoader()"]
    assert str(ZipLoader(loaders[:1])) == "ZipLoader(loaders=[NeighborLoader()])"


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


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_epoch_holds_the_attributes_that_the_data_have_when_it_begins(num_workers: int) -> None:
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


def test_what_stays_the_same_is_not_planned_again() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2], seed=0, batch_size=20)
    plan = loader.plan
    assert next(iter(loader)).x.any()
    data.x[:] = 0  # values are read where they lie
    assert not next(iter(loader)).x.any()
    assert loader.plan is plan


def test_a_feature_that_a_store_got_since_is_there() -> None:
    features, graph = in_stores(sorted_data(False, "coo"), "coo")
    loader = NeighborLoader((features, graph), [2], batch_size=20)
    assert "late" not in next(iter(loader))
    features.put_tensor(torch.arange(60), group_name=None, attr_name="late", index=None)
    batch = next(iter(loader))
    assert torch.equal(batch.late, batch.n_id)
