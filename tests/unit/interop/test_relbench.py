"""The steps of RelBench's programs, with the graphs and tables of the package where it is installed."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ingest import build_dataset, from_relbench
from graphfeed.interop import relbench
from graphfeed.pyg import NeighborLoader
from tests.kinds.digests import digests
from tests.kinds.relbench_folder import write_shop

pytestmark = pytest.mark.filterwarnings("ignore")


def shop(folder: Path) -> Any:
    """Return the data set, its graph and the module that makes graphs."""
    load, modeling = pytest.importorskip("relbench.load"), pytest.importorskip("relbench.modeling.graph")
    frame = pytest.importorskip("torch_frame")
    write_shop(folder, "ns")  # the only unit whose times the package reads with every pandas
    data_set = load.load_dataset(folder)
    columns = {"users": "age", "items": "price", "orders": "count"}
    stypes = {name: {column: frame.numerical} for name, column in columns.items()}
    return data_set, modeling.make_pkey_fkey_graph(data_set.get_db(), stypes)[0], modeling


def test_the_program_for_entities_runs(tmp_path: Path) -> None:
    data_set, data, modeling = shop(tmp_path)
    task = data_set.load_task("spent")
    given = modeling.get_node_train_table_input(task.get_table("train"), task)
    loaders = [
        NeighborLoader(
            data, num_neighbors=[8, 8], time_attr="time", input_nodes=given.nodes, input_time=given.time, batch_size=8,
            transform=given.transform, temporal_strategy="uniform", shuffle=True, num_workers=workers, seed=0,
        )
        for workers in (0, 2)
    ]  # fmt: skip
    alone, together = (list(loader) for loader in loaders)
    for batch in together:
        times = batch["users"].seed_time
        assert (batch["orders"].time <= times[batch["orders"].batch]).all()
        assert len(batch["users"].y) == batch["users"].batch_size
        assert batch["orders"].tf.num_rows == len(batch["orders"].n_id)
    assert len(together) == 5
    assert all(one["users"].y.equal(other["users"].y) for one, other in zip(alone, together, strict=True))
    assert all(one["orders"].n_id.equal(other["orders"].n_id) for one, other in zip(alone, together, strict=True))


def test_the_program_for_recommendation_runs(tmp_path: Path) -> None:
    data_set, data, modeling = shop(tmp_path)
    task = data_set.load_task("bought")
    table = task.get_table("train")
    table.df = table.df[table.df["items"].map(len) > 0].reset_index(drop=True)
    count = modeling.num_dst_nodes(data_set.get_db(), task)
    given = modeling.get_link_train_table_input(table, task, count)
    loaders = [
        relbench.LinkNeighborLoader(
            data=data, num_neighbors=[4, 4], time_attr="time", src_nodes=given.src_nodes, dst_nodes=given.dst_nodes,
            num_dst_nodes=given.num_dst_nodes, src_time=given.src_time, share_same_time=True, batch_size=8,
            temporal_strategy="uniform", shuffle=False, num_workers=workers, seed=0,
        )
        for workers in (0, 2)
    ]  # fmt: skip
    alone, together = (list(loader) for loader in loaders)
    ids = [[[part.n_id_dict for part in triple] for triple in triples] for triples in (alone, together)]
    assert digests(ids[0]) == digests(ids[1])
    found = torch.cat([source["users"].input_id for source, _, _ in together])
    assert sorted(found.tolist()) == sorted(given.src_nodes[1].tolist())


def test_columns_of_mini_batches_become_frames(tmp_path: Path) -> None:
    frame = pytest.importorskip("torch_frame")
    tables = write_shop(tmp_path)
    data: Any = build_dataset(from_relbench(tmp_path, "grade"))
    ages, towns = (tables["users"][name] for name in ("age", "town"))
    train, _, _ = gf.loaders(data.tasks[0], data.graph, [4, 4], 8, data.feature, num_workers=0, seed=0)
    for minibatch in train:
        batch = relbench.to_frames(minibatch, data.feature)
        tf, ids = batch["users"].tf, batch["users"].n_id.tolist()
        assert tf.col_names_dict == {frame.numerical: ["age"], frame.categorical: ["town"]}
        assert tf.feat_dict[frame.numerical][:, 0].tolist() == [ages[row].as_py() or 0 for row in ids]
        codes = tf.feat_dict[frame.categorical][:, 0].tolist()
        assert [["Bonn", "Köln", None][code] for code in codes] == [towns[row] for row in ids]
        assert batch["users"].y.equal(minibatch.labels["users"])
    alone, _, _ = gf.loaders(data.tasks[0], data.graph, [2], 8, num_workers=0, seed=0)
    batch = relbench.to_frames(next(iter(alone)), data.feature)
    assert batch["users"].tf.col_names_dict == {frame.numerical: ["__const__"]}
    assert batch["users"].tf.feat_dict[frame.numerical].tolist() == [[1.0]] * len(batch["users"].n_id)


def test_unsigned_codes_become_categories() -> None:
    frame = pytest.importorskip("torch_frame")
    graph = gf.from_coo({"user:knows:user": ([0, 1], [1, 2])}, {"user": 3})
    codes = gf.TorchBasedFeature(torch.tensor([[1], [2], [0]], dtype=torch.uint8), {"categories": ["a", "b"]})
    store = gf.BasicFeatureStore({("node", "user", "kind"): codes})
    items = gf.HeteroItemSet({"user": gf.ItemSet(3, names="seeds")})
    pipe = gf.ItemSampler(items, batch_size=3).sample_neighbor(graph, [1]).fetch_feature(store, {"user": ["kind"]})
    (minibatch,) = pipe
    tf = relbench.to_frames(minibatch, store)["user"].tf
    assert tf.feat_dict[frame.categorical].tolist() == [[1], [-1], [0]]


def test_frames_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_frame", None)
    with pytest.raises(ImportError, match=r"a TensorFrame needs torch_frame.*graphfeed\[relbench\]"):
        relbench.to_frames(gf.MiniBatch(), gf.BasicFeatureStore({}))
