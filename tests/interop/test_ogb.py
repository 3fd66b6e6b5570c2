"""Folders in the layout of OGB's archives, written here as its own programs expect them."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.interop.ogb import read_ogb
from graphfeed.storage.graph.build.to_coo import to_coo

pytest.importorskip("pyarrow")


def write(path: Path, rows: list[list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    raw, split = tmp_path / "arxiv" / "raw", tmp_path / "arxiv" / "split" / "time"
    write(raw / "edge.csv.gz", [[2, 0], [0, 1], [3, 1]])
    write(raw / "num-node-list.csv.gz", [[4]])
    write(raw / "num-edge-list.csv.gz", [[3]])
    write(raw / "node-feat.csv.gz", [[0.5, 1], [1.5, 2], [2.5, 3], [3.5, 4]])
    write(raw / "node_year.csv.gz", [[2010], [2011], [2012], [2013]])
    write(raw / "edge-feat.csv.gz", [[1], [2], [3]])
    write(raw / "node-label.csv.gz", [[7], [8], [9], [7]])
    for part, ids in {"train": [3, 0], "valid": [1], "test": [2]}.items():
        write(split / f"{part}.csv.gz", [[number] for number in ids])
    return tmp_path / "arxiv"


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    raw, split = tmp_path / "mag" / "raw", tmp_path / "mag" / "split" / "time"
    write(raw / "num-node-dict.csv.gz", [["paper", "author"], [3, 2]])
    write(raw / "triplet-type-list.csv.gz", [["paper", "cites", "paper"], ["author", "writes", "paper"]])
    for kind, pairs in {"paper___cites___paper": [[2, 0]], "author___writes___paper": [[1, 2], [0, 0]]}.items():
        write(raw / "relations" / kind / "edge.csv.gz", pairs)
        write(raw / "relations" / kind / "num-edge-list.csv.gz", [[len(pairs)]])
        write(raw / "relations" / kind / "edge_reltype.csv.gz", [[number] for number in range(len(pairs))])
    write(raw / "node-feat" / "paper" / "node-feat.csv.gz", [[0.5], [1.5], [2.5]])
    write(raw / "node-feat" / "paper" / "node_year.csv.gz", [[2010], [2011], [2012]])
    write(raw / "nodetype-has-label.csv.gz", [["paper", "author"], ["True", "False"]])
    write(raw / "node-label" / "paper" / "node-label.csv.gz", [[4], [5], [6]])
    write(split / "nodetype-has-split.csv.gz", [["paper", "author"], ["True", "False"]])
    for part, ids in {"train": [2, 0], "valid": [1], "test": [1]}.items():
        write(split / "paper" / f"{part}.csv.gz", [[number] for number in ids])
    return tmp_path / "mag"


def edges_of(graph: Any) -> dict[str | None, list[list[int]]]:
    return {kind: torch.stack(own[:2], dim=1).tolist() for kind, own in to_coo(graph).items()}


def train_items(dataset: gf.Dataset) -> list[torch.Tensor]:
    assert isinstance(dataset.train_set, gf.ItemSet)
    return list(dataset.train_set[:])


def rows(dataset: gf.Dataset, *key: Any) -> list[Any]:
    rows_: list[Any] = dataset.feature.read(*key).tolist()
    return rows_


def test_a_graph_without_types_is_read(plain: Path) -> None:
    dataset = read_ogb(plain)
    assert dataset.name == "arxiv"
    assert edges_of(dataset.graph) == {None: [[2, 0], [0, 1], [3, 1]]}
    assert rows(dataset, "node", None, "feat") == [[0.5, 1], [1.5, 2], [2.5, 3], [3.5, 4]]
    assert dataset.feature.read("node", None, "feat").dtype == torch.float32
    assert rows(dataset, "node", None, "node_year") == [[2010], [2011], [2012], [2013]]
    assert rows(dataset, "edge", None, "feat") == [[1], [2], [3]]
    seeds, labels = train_items(dataset)
    assert seeds.tolist() == [3, 0]
    assert labels.tolist() == [7, 7]
    assert len(dataset.all_nodes_set) == 4


def test_reverse_edges_follow_each_edge_with_its_features(plain: Path) -> None:
    dataset = read_ogb(plain, add_inverse_edge=True)
    assert edges_of(dataset.graph) == {None: [[2, 0], [0, 2], [0, 1], [1, 0], [3, 1], [1, 3]]}
    assert rows(dataset, "edge", None, "feat") == [[1], [1], [2], [2], [3], [3]]


def test_a_graph_with_types_is_read(typed: Path) -> None:
    dataset = read_ogb(typed)
    assert dataset.graph.num_nodes == {"author": 2, "paper": 3}
    assert edges_of(dataset.graph) == {"author:writes:paper": [[1, 2], [0, 0]], "paper:cites:paper": [[2, 0]]}
    assert rows(dataset, "node", "paper", "feat") == [[0.5], [1.5], [2.5]]
    assert rows(dataset, "edge", "author:writes:paper", "edge_reltype") == [[0], [1]]
    pipe = gf.ItemSampler(dataset.train_set, batch_size=2).sample_neighbor(dataset.graph, [2])
    (minibatch,) = pipe.fetch_feature(dataset.feature, node_feature_keys={"paper": ["feat", "node_year"]})
    assert minibatch.labels["paper"].tolist() == [6, 4]
    assert minibatch.node_features["paper", "node_year"].tolist()[:2] == [[2012], [2010]]
    with pytest.raises(ValueError, match="'author:writes:paper' joins two node types"):
        read_ogb(typed, add_inverse_edge=True)


def test_arrays_in_one_file_are_read(plain: Path) -> None:
    for path in (plain / "raw").iterdir():
        path.unlink()
    edges, count = np.array([[2, 0], [0, 1]]), np.array([4])
    features: Any = {"node_feat": np.ones((4, 2), np.float16), "node_year": np.arange(4)}
    np.savez(plain / "raw" / "data.npz", edge_index=edges, num_nodes_list=count, **features)
    np.savez(plain / "raw" / "node-label.npz", node_label=np.array([[1.0], [np.nan], [2.0], [3.0]]))
    dataset = read_ogb(plain)
    assert edges_of(dataset.graph) == {None: [[2, 0], [0, 1]]}
    assert dataset.feature.read("node", None, "feat").dtype == torch.float16
    assert rows(dataset, "node", None, "node_year") == [[0], [1], [2], [3]]
    assert train_items(dataset)[1].tolist() == [3, 1]
    assert train_items(dataset)[1].dtype == torch.int64


WRONG: list[tuple[str, list[list[Any]], str]] = [
    ("raw/edge.csv.gz", [[0, 9], [0, 1], [1, 2]], "9"),
    ("raw/edge.csv.gz", [[0.5, 1]], "two ids per edge, but has float64"),
    ("raw/edge.csv.gz", [["a", "b"]], "must have numbers alone"),
    ("raw/num-node-list.csv.gz", [[2], [2]], "2 graphs; read_ogb reads one graph"),
    ("raw/node-feat.csv.gz", [[1]], "node feature 'feat' has 1 rows, but there are 4 nodes"),
    ("raw/node-label.csv.gz", [[1]], "there are 4 nodes, but 1 rows of labels"),
    ("split/time/train.csv.gz", [[0.7]], "must have ids, but has float64"),
    ("split/time/train.csv.gz", [[4]], "ids from 4 to 4, but there are 4 nodes"),
]


def test_what_does_not_fit_is_named(plain: Path) -> None:
    for name, content, error in WRONG:
        path = plain / name
        before = path.read_bytes()
        write(path, content)
        with pytest.raises(ValueError, match=error):
            read_ogb(plain)
        path.write_bytes(before)


def test_a_cut_file_is_named(plain: Path) -> None:
    path = plain / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"node-feat.csv.gz can't be read"):
        read_ogb(plain)


def test_missing_files_and_splits_are_named(plain: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has the splits \['time'\]; split must be one .* 'random'"):
        read_ogb(plain, split="random")
    (plain / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"edge.csv.gz; unpack the archive again"):
        read_ogb(plain)


def test_types_lead_to_no_folders_elsewhere(typed: Path) -> None:
    write(typed / "raw" / "triplet-type-list.csv.gz", [["..", "/../..", "paper"]])
    with pytest.raises(ValueError, match="which is no name of a folder"):
        read_ogb(typed)


def test_labels_of_all_parts_have_one_dtype(plain: Path) -> None:
    write(plain / "raw" / "node-label.csv.gz", [[1.5], [2], [3], [4]])
    dataset = read_ogb(plain)
    for part in (dataset.train_set, dataset.validation_set, dataset.test_set):
        assert isinstance(part, gf.ItemSet)
        assert part[:][1].dtype == torch.float64


NO_EDGES = {
    "two ids per edge, but has int64": np.zeros((3, 2), np.int64),
    "two ids per edge, but has float64": np.zeros((2, 3)),
    "no array 'edge_index'": None,
}


def test_arrays_that_are_no_edges_are_named(plain: Path) -> None:
    path = plain / "raw" / "data.npz"
    for error, edges in NO_EDGES.items():
        arrays: Any = {"num_nodes_list": np.array([4])} | ({} if edges is None else {"edge_index": edges})
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=f"data.npz .*{error}"):
            read_ogb(plain)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"data.npz can't be read"):
        read_ogb(plain)
