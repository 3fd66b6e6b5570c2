"""OGB's archives, and their splits of edges, become data sets."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import interop
from graphfeed.storage.graph import to_coo

pytest.importorskip("pyarrow")
read_ogb = interop.ogb.read_ogb


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
    with pytest.raises(ValueError, match="'author:writes:paper' connects two node types"):
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
    ("raw/edge.csv.gz", [["a", "b"]], "must contain only numbers"),
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


def test_missing_splits_are_named(plain: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has the splits \['time'\]; split must be one .* 'random'"):
        read_ogb(plain, split="random")


def test_types_lead_to_no_folders_elsewhere(typed: Path) -> None:
    write(typed / "raw" / "triplet-type-list.csv.gz", [["..", "/../..", "paper"]])
    with pytest.raises(ValueError, match="which is not the name of a folder"):
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


EDGE = np.array([[0, 1], [2, 3], [3, 0]])
NEGATIVES = np.array([[1, 1], [2, 2]])
YEAR = np.array([2000, 2001, 2002])


@pytest.fixture
def unsplit(tmp_path: Path) -> Path:
    write(tmp_path / "raw" / "edge.csv.gz", [[0, 1], [2, 3]])
    write(tmp_path / "raw" / "num-node-list.csv.gz", [[4]])
    return tmp_path


def split(root: Path, **parts: Any) -> gf.Dataset:
    """Write a split, and read all; parts that are not given are edges alone."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        pytest.skip("torch before 2.6 allows no names of others")
    folder = root / "split" / "time"
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        torch.save(parts.get(part, {"edge": EDGE}), folder / f"{part}.pt")
    return read_ogb(root)


def batches(items: Any, size: int = 2) -> list[Any]:
    return list(gf.ItemSampler(items, batch_size=size))


def test_edges_become_pairs_and_other_columns_keep_their_place(unsplit: Path) -> None:
    layouts: list[Any] = [EDGE, np.asfortranarray(EDGE), EDGE.astype(">i8"), torch.tensor(EDGE)]
    for edges in layouts:
        dataset = split(unsplit, train={"edge": edges, "weight": np.ones(3, np.float32), "year": YEAR})
        assert [batch.seeds.tolist() for batch in batches(dataset.train_set)] == [[[0, 1], [2, 3]], [[3, 0]]]
        items: Any = dataset.train_set
        assert [values.tolist() for values in items[:]] == [EDGE.tolist(), [1, 1, 1], YEAR.tolist()]


def test_wrong_edges_follow_with_labels(unsplit: Path) -> None:
    dataset = split(unsplit, valid={"edge": EDGE, "edge_neg": NEGATIVES, "year": YEAR})
    (batch,) = batches(dataset.validation_set, 9)
    assert batch.seeds.tolist() == [*EDGE.tolist(), *NEGATIVES.tolist()]
    assert batch.labels.tolist() == [1, 1, 1, 0, 0]


def test_a_part_may_have_no_edges(unsplit: Path) -> None:
    dataset = split(unsplit, train={"edge": EDGE[:0]}, valid={"edge": EDGE, "edge_neg": EDGE[:0]})
    assert len(dataset.train_set) == 0
    assert batches(dataset.validation_set, 9)[0].labels.tolist() == [1, 1, 1]


def test_wrong_destinations_are_grouped_with_their_edge(unsplit: Path) -> None:
    ranked = {"source_node": EDGE[:, 0], "target_node": EDGE[:, 1]}
    dataset = split(unsplit, train=ranked, test=ranked | {"target_node_neg": np.array([[3, 2], [0, 1], [1, 2]])})
    assert [batch.seeds.tolist() for batch in batches(dataset.train_set, 9)] == [EDGE.tolist()]
    first, _ = batches(dataset.test_set)
    assert first.seeds.tolist() == [[0, 1], [2, 3], [0, 3], [0, 2], [2, 0], [2, 1]]
    assert (first.labels.tolist(), first.indexes.tolist()) == ([1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 1])


def test_facts_of_a_graph_without_types_keep_their_relations(unsplit: Path) -> None:
    facts = {
        "head": EDGE[:, 0],
        "relation": np.array([5, 6, 5]),
        "tail": EDGE[:, 1],
        "head_neg": EDGE,
        "tail_neg": EDGE,
    }
    dataset = split(unsplit, valid=facts)
    (batch,) = batches(dataset.validation_set, 9)
    assert batch.seeds.tolist() == EDGE.tolist()
    items: Any = dataset.validation_set
    assert items[:][1].tolist() == [5, 6, 5]


def test_facts_of_a_graph_with_types_are_by_edge_type(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw / "num-node-dict.csv.gz", [["drug", "gene"], [3, 2]])
    write(raw / "triplet-type-list.csv.gz", [["drug", "binds", "gene"], ["drug", "like", "drug"]])
    for kind, edges, number in (("drug___binds___gene", [[2, 1], [0, 0]], 7), ("drug___like___drug", [[0, 2]], 4)):
        write(raw / "relations" / kind / "edge.csv.gz", edges)
        write(raw / "relations" / kind / "edge_reltype.csv.gz", [[number]] * len(edges))
    ends = {"head": np.array([2, 0, 1]), "relation": np.array([7, 4, 7]), "tail": np.array([1, 2, 0])}
    facts = ends | {"head_type": ["drug"] * 3, "tail_type": ["gene", "drug", "gene"], "head_neg": EDGE}
    dataset = split(tmp_path, train=facts, valid=facts, test=facts)
    (batch,) = batches(dataset.train_set, 9)
    assert {kind: pairs.tolist() for kind, pairs in batch.seeds.items()} == {
        "drug:binds:gene": [[2, 1], [1, 0]],
        "drug:like:drug": [[0, 2]],
    }
    with pytest.raises(ValueError, match=r"relation 9 has no edge type; the graph has \[4, 7\]"):
        split(tmp_path, train=facts | {"relation": np.array([7, 4, 9])})
    with pytest.raises(ValueError, match=r"'drug:binds:gene': tail must be in 0 .. 1, but .* 2"):
        split(tmp_path, train=facts | {"relation": np.array([7, 7, 7])})


def test_one_file_may_have_all_parts(unsplit: Path) -> None:
    split(unsplit)
    whole = {"train": {"edge": NEGATIVES}, "valid": {"edge": EDGE}, "test": {"edge": torch.tensor(EDGE)}}
    torch.save(whole, unsplit / "split" / "time" / "split_dict.pt")
    assert len(read_ogb(unsplit).train_set) == 2


WRONG_SPLITS: list[tuple[Any, str]] = [
    ([1], "must hold a dict of arrays, but holds a list"),
    ({"edges": EDGE}, r"does not contain a valid split of edges: it has \['edges'\], but neither"),
    ({"edge": EDGE[:, :1]}, r"edge must have two ids per edge, but has torch.int64 values of \(3, 1\)"),
    ({"edge": EDGE / 2}, "edge must have two ids per edge, but has torch.float64"),
    ({"edge": EDGE + 2}, "edge must be in 0 .. 3, but"),
    ({"edge": EDGE, "edge_neg": EDGE - 1}, "edge_neg must be in 0 .. 3, but"),
    ({"edge": np.array([["a", "b"]])}, "an array must hold numbers, but is 'U1'"),
    ({"edge": np.array([[{}, 1]], dtype=object)}, "an array must hold numbers, but is 'O8'"),
    ({"edge": EDGE, "year": YEAR[:2]}, r"the members have \[3, 2\] rows"),
    ({"source_node": YEAR}, "target_node"),
]


def test_what_does_not_fit_is_named_with_its_file(unsplit: Path) -> None:
    for train, text in WRONG_SPLITS:
        with pytest.raises(ValueError, match=rf"train\.pt .*{text}"):
            split(unsplit, train=train)


class ManyBytes:
    """Takes memory where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (1 << 20,)


def test_nothing_else_is_unpickled_and_torch_allows_as_before(unsplit: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    with pytest.raises(ValueError, match="is an object other than an array"):
        split(unsplit, train={"edge": EDGE, "more": ManyBytes()})
    assert set(torch.serialization.get_safe_globals()) == before
    split(unsplit)
    torch.save({"edge": EDGE}, unsplit / "split" / "time" / "test.pt", pickle_protocol=4)
    with pytest.warns(UserWarning, match="protocol 4"), pytest.raises(ValueError, match="pickle_protocol"):
        read_ogb(unsplit)
