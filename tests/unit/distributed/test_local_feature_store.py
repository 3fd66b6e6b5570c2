"""The features of a part, and their use in loaders; the first two tests have the values of PyG's tests."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    DistContext,
    DistNeighborLoader,
    LocalFeatureStore,
    LocalGraphStore,
    Partitioner,
    Peers,
    assign_nodes,
    open_part,
    write_partition,
)
from graphfeed.pyg.data import import_pyg
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same
from tests.kinds.joint import in_threads
from tests.kinds.pyg_data import hetero_data, plain_data
from tests.kinds.refusals import check_refused
from tests.stand_ins.rank_processes import run_spawned

IDS = torch.tensor([1, 2, 3, 5, 8, 4])
VALUES = torch.arange(27.0).view(9, 3)


def papers() -> LocalFeatureStore:
    store = LocalFeatureStore()
    store.put_global_id(IDS, group_name="paper")
    store.put_tensor(VALUES[IDS], group_name="paper", attr_name="feat")
    return store


def test_rows_are_found_by_global_ids() -> None:
    index = torch.tensor([3, 8, 4])
    found = papers().get_tensor_from_global_id(group_name="paper", attr_name="feat", index=index)
    assert_same(found, VALUES[index])


def test_tensors_are_set_listed_measured_and_removed() -> None:
    store = papers()
    (attr,) = store.get_all_tensor_attrs()
    assert (attr.group_name, attr.attr_name, attr.index) == ("paper", "feat", None)
    assert store.get_tensor_size(attr) == (6, 3)
    assert_same(store.get_tensor("paper", "feat", torch.tensor([1])), VALUES[IDS[1:2]])
    assert store.update_tensor(VALUES, attr)
    assert_same(store.multi_get_tensor([attr]), [VALUES])
    assert [store.remove_tensor(attr) for _ in range(2)] == [True, False]
    assert [store.remove_global_id("paper") for _ in range(2)] == [True, False]
    assert store.get_global_id("paper") is None


def test_a_feature_store_is_one_of_pygs_with_its_views_and_is_copied() -> None:
    store, module = papers(), import_pyg("torch_geometric.data", "tests")
    assert isinstance(store, module.FeatureStore)
    rows = VALUES[IDS]
    for index in (np.array([1, 2]), torch.tensor([1, 2]), slice(1, 3), [1, 2]):
        assert_same(store.get_tensor("paper", "feat", index), rows[1:3])
        assert store.get_tensor_size(module.TensorAttr("paper", "feat", index)) == (2, 3)
    for whole in (store["paper"].feat, store["paper", "feat"], store.get_tensor(module.TensorAttr("paper", "feat"))):
        assert_same(whole, rows)
    store["paper", "year"] = IDS
    store.put_tensor(IDS, attr_name="x")
    copied = pickle.loads(pickle.dumps(store))
    assert_same(copied.multi_get_tensor([("paper", "year"), (None, "x")]), [IDS, IDS])
    assert_same(copied.get_tensor_from_global_id("paper", "feat", torch.tensor([4])), VALUES[4:5])
    assert len({store, copied, store}) == 2


def test_the_stores_import_pyg_on_first_use() -> None:
    code = """
import sys
import graphfeed.distributed as distributed
from graphfeed.distributed import DistNeighborLoader, Partitioner, open_part
assert "torch_geometric" not in sys.modules
sys.modules["torch_geometric"] = None
for name in ("LocalFeatureStore", "LocalGraphStore"):
    try:
        getattr(distributed, name)
    except ImportError as error:
        print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expected = "a LocalFeatureStore or LocalGraphStore needs torch_geometric, which is not installed: pip install"
    assert [line.startswith(expected) for line in printed.splitlines()] == [True, True]


def test_rows_of_all_parts_are_read_and_those_of_a_tensor_that_is_set_anew(tmp_path: Path) -> None:
    graph, rows = graphs.plain(), torch.arange(300.0).view(100, 3)
    features = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(rows)})
    root = write_partition(tmp_path / "parts", graph, assign_nodes(graph, 2, "hash"), 2, features)

    def work(rank: int, peers: Peers) -> None:
        store = LocalFeatureStore.from_partition(root, rank)
        sources = open_part(root, rank).graph.columns.indices
        assert_same(store.partitioned_features(peers)["node", None, "x"].read(sources), rows[sources])
        store.put_tensor(store.get_tensor(None, "x") + 1, None, "x")
        assert_same(store.partitioned_features(peers)["node", None, "x"].read(), rows + 1)

    in_threads(2, work)


def test_what_is_not_here_is_an_error() -> None:
    store, alone, ids = papers(), LocalFeatureStore.from_data(torch.arange(3), VALUES[:3]), torch.tensor([0])
    unknown = papers()
    unknown.num_partitions = 2
    for wrong in ([0], [6], [9], [1, 7]):
        with pytest.raises(IndexError, match=f"part 0 has no row of 'paper' with id {wrong[-1]}"):
            store.get_tensor_from_global_id("paper", "feat", torch.tensor(wrong))
    check_refused(
        [
            (lambda: store.get_tensor("paper", "x"), KeyError, "there is no tensor 'x' of 'paper'"),
            (
                lambda: store.get_tensor_from_global_id("paper", "feat"),
                ValueError,
                "index must be global ids, but is None",
            ),
            (lambda: store.put_tensor(VALUES, "paper", "feat", ids), ValueError, "index must be left out"),
            (lambda: store.rows_of("author", ids), ValueError, "'author' has no global ids"),
            (lambda: store.set_rpc_router(None), ValueError, "rpc_router must be"),
            (
                lambda: LocalFeatureStore.from_data(IDS, edge_attr=VALUES),
                ValueError,
                "edge_id needs to be given together with edge_attr",
            ),
            (lambda: alone.lookup_features(torch.tensor([3])).wait(), IndexError, "3"),
            (lambda: alone.lookup_features(ids, is_node_feat=False), KeyError, "there is no tensor 'edge_attr'"),
            (
                lambda: unknown.partitioned_features(Peers()),
                ValueError,
                "the parts of 'paper' are unknown; set node_feat_pb",
            ),
        ]
    )


def test_a_store_is_made_of_tensors() -> None:
    nodes, edges = torch.randperm(6), torch.randperm(12)
    x, y, attr = torch.randn(6, 4), torch.arange(6), torch.randn(12, 2)
    store = LocalFeatureStore.from_data(nodes, x, y, edges, attr)
    named = [(own.group_name, own.attr_name) for own in store.get_all_tensor_attrs()]
    assert named == [(None, "x"), (None, "y"), ((None, None), "edge_attr")]
    assert_same([store.get_global_id(None), store.get_global_id((None, None))], [nodes, edges])
    assert store.has_edge_attr()
    assert not LocalFeatureStore.from_data(nodes, x).has_edge_attr()
    kind = ("a", "to", "b")
    typed = LocalFeatureStore.from_hetero_data({"a": nodes}, {"a": x}, {"a": y}, {kind: edges}, {kind: attr})
    assert_same(typed.get_tensor(kind, "edge_attr"), attr)
    assert_same(typed.lookup_features(nodes, input_type="a").wait(), x)
    assert_same(typed.lookup_features(edges, is_node_feat=False, input_type=kind).wait(), attr)


@pytest.mark.parametrize("make", [plain_data, hetero_data])
def test_a_part_of_pygs_layout_has_its_rows(tmp_path: Path, make: Any) -> None:
    data = make()
    Partitioner(data, 2, tmp_path / "parts", method="hash").generate_partition()
    for part in range(2):
        store = LocalFeatureStore.from_partition(str(tmp_path / "parts"), part)
        assert (store.num_partitions, store.partition_idx, store.has_edge_attr()) == (2, part, True)
        for attr in store.get_all_tensor_attrs():
            group, name = attr.group_name, attr.attr_name
            ids = store.get_global_id(group)
            own = data.to_dict() if group in (None, (None, None)) else data[group]
            rows = own["edge_time" if name == "edge_time" else name]
            assert_same(store.get_tensor(group, name), rows if name == "time" else rows[ids])


def test_a_part_of_our_layout_has_its_rows(tmp_path: Path) -> None:
    graph = graphs.plain()
    rows = {("node", None, "x"): torch.arange(100.0)[:, None], ("edge", None, "w"): torch.arange(700)[:, None]}
    features = gf.BasicFeatureStore({key: gf.TorchBasedFeature(values) for key, values in rows.items()})
    write_partition(tmp_path / "parts", graph, assign_nodes(graph, 2, "hash"), num_parts=2, features=features)
    store = LocalFeatureStore.from_partition(tmp_path / "parts", 1)
    assert_same(store.get_tensor(None, "x")[:, 0].long(), store.get_global_id(None))
    assert_same(store.get_tensor((None, None), "w")[:, 0], store.get_global_id((None, None)))


def test_rows_of_all_ranks_are_looked_up_in_the_order_of_the_ids(tmp_path: Path) -> None:
    data, nodes, edges = plain_data(), torch.randint(0, 60, (40,)), torch.randint(0, 400, (40,))
    Partitioner(data, 3, tmp_path / "parts", method="hash").generate_partition()

    def work(rank: int, peers: Peers) -> None:
        store = LocalFeatureStore.from_partition(tmp_path / "parts", rank)
        store.set_rpc_router(peers)
        assert_same(store.lookup_features(nodes).wait(), data.x[nodes])
        assert_same(store.lookup_features(edges, is_node_feat=False).wait(), data.edge_attr[edges])

    in_threads(3, work)


def look_up_behind_a_loader(rank: int, world_size: int, port: int, root: str) -> None:
    """Run a rank without a process group, whose loader connects to the others at an address of any source."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port - 1))  # the next port is for the loader
    address, given_port = (None, None) if rank else ("127.0.0.1", port)
    stores = LocalFeatureStore.from_partition(root, rank), LocalGraphStore.from_partition(root, rank)
    context = DistContext(rank, rank, world_size, world_size, "test")
    loader = DistNeighborLoader(stores, [2], address, given_port, context, batch_size=10)
    data, nodes, edges = plain_data(), torch.randint(0, 60, (40,)), torch.randint(0, 400, (40,))
    for _ in loader:
        assert torch.equal(stores[0].lookup_features(nodes).wait(), data.x[nodes])
    assert torch.equal(stores[0].lookup_features(edges, is_node_feat=False).wait(), data.edge_attr[edges])


@pytest.mark.slow
def test_rows_are_looked_up_at_the_ranks_that_a_loader_meets(tmp_path: Path) -> None:
    Partitioner(plain_data(), 2, tmp_path / "parts", method="hash").generate_partition()
    status, printed = run_spawned(f"{__name__}:look_up_behind_a_loader", 2, root=str(tmp_path / "parts"))
    assert status == 0, printed
