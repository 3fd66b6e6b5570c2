"""Readers of files from outside, each with a function that writes its files."""

import gzip
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from graphfeed import interop
from graphfeed.__main__ import main
from graphfeed.distributed import Partitioner, open_part, write_partition
from graphfeed.ingest import (
    EdgeTable,
    NodeTable,
    Spec,
    build_dataset,
    inspect_dataset,
    inspect_graph_file,
    read_tfrecords,
    write_tfrecords,
)
from graphfeed.pyg import ClusterData, GraphSAINTNodeSampler
from graphfeed.storage import OnDiskFeatureData, TorchBasedFeatureStore
from tests.kinds import on_disk
from tests.kinds.example_tables import LIKES, write
from tests.kinds.pyg_data import plain_data

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
GRAPH = gf.from_coo(EDGES, num_nodes=4, edge_attributes={"w": torch.arange(5.0)})
ROWS = np.arange(8.0).reshape(4, 2)


def consume(dataset: Any) -> None:
    """Read the graph, the rows of all features and the items of a data set."""
    assert dataset.graph is not None
    for key in dataset.feature.keys():  # noqa: SIM118
        dataset.feature.read(*key)
    for task in dataset.tasks:
        for items in (task.train_set, task.validation_set, task.test_set):
            if items is not None:
                list(gf.ItemSampler(items, batch_size=2))


def write_saved_graph(folder: Path) -> None:
    GRAPH.save(folder / "graph")


def sample(folder: Path) -> None:
    graph = gf.load_graph(folder / "graph")
    graph.check()
    list(gf.ItemSampler(gf.ItemSet(torch.arange(4), "seeds"), 2).sample_neighbor(graph, [2, 2]))


def write_graph(folder: Path) -> None:
    torch.save({"csc_indptr": torch.tensor([0, 1, 2]), "indices": torch.tensor([1, 0])}, folder / "graph.pt")


def write_rows(folder: Path) -> None:
    np.save(folder / "rows.npy", ROWS)
    torch.save(torch.from_numpy(ROWS), folder / "rows.pt")


def read_rows(folder: Path) -> None:
    rows: list[tuple[Any, str, bool]] = [("numpy", "rows.npy", True), ("torch", "rows.pt", True)]
    for format, name, in_memory in [*rows, ("numpy", "rows.npy", False)]:
        given = [OnDiskFeatureData("node", "a", format, folder / name, in_memory=in_memory)]
        TorchBasedFeatureStore(given).read("node", None, "a")


def write_metadata(folder: Path) -> None:
    on_disk.write(folder, on_disk.untyped(folder))


def write_metadata_of_tensors(folder: Path) -> None:
    on_disk.write(folder, on_disk.untyped(folder, "pt", "pt"))


def read_dataset(folder: Path) -> None:
    consume(gf.OnDiskDataset(folder).load())


def write_tables(folder: Path) -> None:
    np.save(folder / "pairs.npy", EDGES.T.numpy())
    np.save(folder / "rows.npy", ROWS)
    np.savez(folder / "more.npz", rows=ROWS)
    np.savez(folder / "nodes.npz", id=np.arange(4), label=np.array([0, 1, 0, 1]))
    nodes = NodeTable("nodes.npz", id="id", label="label", features={"x": "rows.npy", "y": "more.npz#rows"})
    edges = EdgeTable("pairs.npy", source="0", destination="1")
    (folder / "spec.yaml").write_text(Spec({"n:r:n": edges}, {"n": nodes}).to_yaml())


def build(folder: Path) -> Any:
    return build_dataset(folder / "spec.yaml", folder / "out")


def write_likes(suffix: str, folder: Path) -> None:
    write(folder / f"likes{suffix}", {**LIKES, "x": [0.5] * len(LIKES["user"])})


def build_likes(suffix: str, folder: Path) -> Any:
    edges = EdgeTable(f"likes{suffix}", source="user", destination="item", time="at", features={"x": "x"})
    return build_dataset(Spec({"user:likes:item": edges}, folder=folder))


RECORDS = {"id": torch.arange(30).reshape(10, 3), "w": torch.arange(10) / 2}


def write_records(folder: Path) -> None:
    write_tfrecords(folder / "a.tfrecord", RECORDS)
    write_tfrecords(folder / "b.tfrecord.gz", RECORDS, "gzip")


def read_records(folder: Path) -> None:
    """Read records; nothing may be lost without an error but whole records at the end of a plain file."""
    found = [read_tfrecords(folder / name) for name in ("a.tfrecord", "b.tfrecord.gz")]
    for columns in found[:1] if all(found) else []:
        assert all(torch.equal(values, RECORDS[name][: len(values)]) for name, values in columns.items())
    assert all(torch.equal(values, RECORDS[name]) for name, values in found[1].items())


def write_guessed_tables(folder: Path) -> None:
    np.savez(folder / "edges_n_r_n.npz", source=EDGES[0].numpy(), destination=EDGES[1].numpy())


def guess(folder: Path) -> None:
    if main(["ingest", "--guess", str(folder / "edges_n_r_n.npz")]):
        raise ValueError("the command failed")


def write_built_dataset(folder: Path) -> None:
    write_tables(folder)
    build(folder)
    for path in [*folder.glob("*.np?"), folder / "spec.yaml"]:
        path.unlink()


def read_built_dataset(folder: Path) -> None:
    dataset = gf.OnDiskDataset(folder / "out").load()
    consume(dataset)
    assert dataset.ids("n").find([3]).tolist() == [3]


def inspect(folder: Path) -> None:
    inspect_dataset(folder / "out")


def write_ogb(folder: Path) -> None:
    for part in ("raw", "split/time"):
        (folder / part).mkdir(parents=True)
    arrays: dict[str, Any] = {"edge_index": EDGES.numpy(), "num_nodes_list": np.array([4]), "node_feat": ROWS}
    np.savez(folder / "raw" / "data.npz", **arrays)
    np.savez(folder / "raw" / "node-label.npz", node_label=np.arange(4))
    for part in ("train", "valid", "test"):
        (folder / "split" / "time" / f"{part}.csv.gz").write_bytes(gzip.compress(b"0\n2\n"))


def write_ogb_links(folder: Path) -> None:
    write_ogb(folder)
    (folder / "raw" / "node-label.npz").unlink()
    for part in ("train", "valid", "test"):
        (folder / "split" / "time" / f"{part}.csv.gz").unlink()
        torch.save({"edge": EDGES.T}, folder / "split" / "time" / f"{part}.pt")


def write_graphlearn(folder: Path) -> None:
    edges, rows = folder / "part0" / "graph", folder / "part0" / "node_feat"
    for path in (edges, rows):
        path.mkdir(parents=True)
    tensors = {"rows": EDGES[0], "cols": EDGES[1], "eids": torch.arange(5), "weights": torch.ones(5)}
    for name, values in tensors.items():
        torch.save(values, edges / f"{name}.pt")
    torch.save(torch.zeros(4), folder / "node_pb.pt")
    torch.save(torch.zeros(5), folder / "edge_pb.pt")
    (rows / "ids.pkl").write_bytes(pickle.dumps(torch.arange(4)))
    (rows / "feats.pkl").write_bytes(pickle.dumps(torch.from_numpy(ROWS)))


def write_partition_files(folder: Path) -> None:
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.from_numpy(ROWS))})
    write_partition(folder / "parts", GRAPH, torch.zeros(4, dtype=torch.int64), 1, store)


def write_pyg_partition(folder: Path) -> None:
    Partitioner(plain_data(), 1, folder / "parts", method="hash").generate_partition()


def read_part(folder: Path) -> None:
    stored = open_part(folder / "parts", 0, check=True)
    for key in stored.features.keys():  # noqa: SIM118
        stored.features.read(*key)


def write_seeds(folder: Path) -> None:
    np.save(folder / "seeds.npy", np.arange(4))
    GRAPH.save(folder / "graph")


def partition_by_seeds(folder: Path) -> None:
    command = ["partition", folder / "graph", folder / "parts", "--parts", 2, "--balance", folder / "seeds.npy"]
    if main(list(map(str, command))):
        raise ValueError("the command failed")


def cluster(folder: Path) -> None:
    ClusterData(plain_data(), 4, save_dir=str(folder))


def count_norms(folder: Path) -> None:
    GraphSAINTNodeSampler(plain_data(), 8, num_steps=2, sample_coverage=1, save_dir=str(folder), num_workers=0)


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "load_graph": (write_graph, lambda folder: gf.load_graph(folder / "graph.pt").check()),
    "load_graph of save": (write_saved_graph, sample),
    "inspect_graph_file": (write_graph, lambda folder: inspect_graph_file(folder / "graph.pt")),
    "TorchBasedFeatureStore": (write_rows, read_rows),
    "OnDiskDataset": (write_metadata, read_dataset),
    "OnDiskDataset with tensors": (write_metadata_of_tensors, read_dataset),
    "build_dataset": (write_tables, build),
    "a guess of a specification": (write_guessed_tables, guess),
    "OnDiskDataset after build_dataset": (write_built_dataset, read_built_dataset),
    "inspect_dataset": (write_built_dataset, inspect),
    "read_ogb": (write_ogb, lambda folder: consume(interop.ogb.read_ogb(folder))),
    "read_ogb with links": (write_ogb_links, lambda folder: consume(interop.ogb.read_ogb(folder))),
    "read_graphlearn": (write_graphlearn, interop.read_graphlearn),
    "open_part": (write_partition_files, read_part),
    "open_part in PyG's layout": (write_pyg_partition, read_part),
    "partition by seeds": (write_seeds, partition_by_seeds),
    "ClusterData": (cluster, cluster),
    "GraphSAINTNodeSampler": (count_norms, count_norms),
    "read_tfrecords": (write_records, read_records),
}
"""Functions that write the files of a reader to a folder, and that read them."""
FORMATS: dict[str, Any] = {
    f"build_dataset from {suffix}": (partial(write_likes, suffix), partial(build_likes, suffix))
    for suffix in (".parquet", ".arrow", ".csv", ".tsv.gz", ".npz", ".ndjson", ".tfrecord", ".tfrecord.gz")
}
READERS |= FORMATS
