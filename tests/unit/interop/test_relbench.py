"""The steps of RelBench's programs, with the graphs and tables of the package where it is installed."""

from pathlib import Path
from typing import Any

import pytest
import torch

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
