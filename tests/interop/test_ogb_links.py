"""Splits of edges in the layout of OGB's archives: files of `torch.save` with NumPy's arrays."""

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.interop.ogb import read_ogb

pytest.importorskip("pyarrow")
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    pytest.skip("torch before 2.6 allows no names of others", allow_module_level=True)

EDGE = np.array([[0, 1], [2, 3], [3, 0]])
WRONG = np.array([[1, 1], [2, 2]])
YEAR = np.array([2000, 2001, 2002])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write(text)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write(tmp_path / "raw" / "edge.csv.gz", "0,1\n2,3\n")
    write(tmp_path / "raw" / "num-node-list.csv.gz", "4\n")
    return tmp_path


def split(root: Path, **parts: Any) -> gf.Dataset:
    """Write a split, and read all; parts that are not given are edges alone."""
    folder = root / "split" / "time"
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        torch.save(parts.get(part, {"edge": EDGE}), folder / f"{part}.pt")
    return read_ogb(root)


def batches(items: Any, size: int = 2) -> list[Any]:
    return list(gf.ItemSampler(items, batch_size=size))


def test_edges_become_pairs_and_other_columns_keep_their_place(plain: Path) -> None:
    layouts: list[Any] = [EDGE, np.asfortranarray(EDGE), EDGE.astype(">i8"), torch.tensor(EDGE)]
    for edges in layouts:
        dataset = split(plain, train={"edge": edges, "weight": np.ones(3, np.float32), "year": YEAR})
        assert [batch.seeds.tolist() for batch in batches(dataset.train_set)] == [[[0, 1], [2, 3]], [[3, 0]]]
        items: Any = dataset.train_set
        assert [values.tolist() for values in items[:]] == [EDGE.tolist(), [1, 1, 1], YEAR.tolist()]


def test_wrong_edges_follow_with_labels(plain: Path) -> None:
    dataset = split(plain, valid={"edge": EDGE, "edge_neg": WRONG, "year": YEAR})
    (batch,) = batches(dataset.validation_set, 9)
    assert batch.seeds.tolist() == [*EDGE.tolist(), *WRONG.tolist()]
    assert batch.labels.tolist() == [1, 1, 1, 0, 0]


def test_a_part_may_have_no_edges(plain: Path) -> None:
    dataset = split(plain, train={"edge": EDGE[:0]}, valid={"edge": EDGE, "edge_neg": EDGE[:0]})
    assert len(dataset.train_set) == 0
    assert batches(dataset.validation_set, 9)[0].labels.tolist() == [1, 1, 1]


def test_wrong_destinations_are_grouped_with_their_edge(plain: Path) -> None:
    ranked = {"source_node": EDGE[:, 0], "target_node": EDGE[:, 1]}
    dataset = split(plain, train=ranked, test=ranked | {"target_node_neg": np.array([[3, 2], [0, 1], [1, 2]])})
    assert [batch.seeds.tolist() for batch in batches(dataset.train_set, 9)] == [EDGE.tolist()]
    first, _ = batches(dataset.test_set)
    assert first.seeds.tolist() == [[0, 1], [2, 3], [0, 3], [0, 2], [2, 0], [2, 1]]
    assert (first.labels.tolist(), first.indexes.tolist()) == ([1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 1])


def test_facts_of_a_graph_without_types_keep_their_relations(plain: Path) -> None:
    facts = {
        "head": EDGE[:, 0],
        "relation": np.array([5, 6, 5]),
        "tail": EDGE[:, 1],
        "head_neg": EDGE,
        "tail_neg": EDGE,
    }
    dataset = split(plain, valid=facts)
    (batch,) = batches(dataset.validation_set, 9)
    assert batch.seeds.tolist() == EDGE.tolist()
    items: Any = dataset.validation_set
    assert items[:][1].tolist() == [5, 6, 5]


def test_facts_of_a_graph_with_types_are_by_edge_type(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw / "num-node-dict.csv.gz", "drug,gene\n3,2\n")
    write(raw / "triplet-type-list.csv.gz", "drug,binds,gene\ndrug,like,drug\n")
    for kind, edges, number in (("drug___binds___gene", "2,1\n0,0\n", 7), ("drug___like___drug", "0,2\n", 4)):
        write(raw / "relations" / kind / "edge.csv.gz", edges)
        write(raw / "relations" / kind / "edge_reltype.csv.gz", f"{number}\n" * edges.count("\n"))
    ends = {"head": np.array([2, 0, 1]), "relation": np.array([7, 4, 7]), "tail": np.array([1, 2, 0])}
    facts = ends | {"head_type": ["drug"] * 3, "tail_type": ["gene", "drug", "gene"], "head_neg": EDGE}
    dataset = split(tmp_path, train=facts, valid=facts, test=facts)
    (batch,) = batches(dataset.train_set, 9)
    assert {kind: pairs.tolist() for kind, pairs in batch.seeds.items()} == {
        "drug:binds:gene": [[2, 1], [1, 0]],
        "drug:like:drug": [[0, 2]],
    }
    with pytest.raises(ValueError, match=r"relation 9 is that of no edge type; the graph has \[4, 7\]"):
        split(tmp_path, train=facts | {"relation": np.array([7, 4, 9])})
    with pytest.raises(ValueError, match=r"'drug:binds:gene': tail must lie in 0 .. 1, but .* 2"):
        split(tmp_path, train=facts | {"relation": np.array([7, 7, 7])})


def test_one_file_may_have_all_parts(plain: Path) -> None:
    split(plain)
    whole = {"train": {"edge": WRONG}, "valid": {"edge": EDGE}, "test": {"edge": torch.tensor(EDGE)}}
    torch.save(whole, plain / "split" / "time" / "split_dict.pt")
    assert len(read_ogb(plain).train_set) == 2


WRONG_SPLITS: list[tuple[Any, str]] = [
    ([1], "must hold a dict of arrays, but holds a list"),
    ({"edges": EDGE}, r"holds no split of edges that can be read: it has \['edges'\], but neither"),
    ({"edge": EDGE[:, :1]}, r"edge must have two ids per edge, but has torch.int64 values of \(3, 1\)"),
    ({"edge": EDGE / 2}, "edge must have two ids per edge, but has torch.float64"),
    ({"edge": EDGE + 2}, "edge must lie in 0 .. 3, but"),
    ({"edge": EDGE, "edge_neg": EDGE - 1}, "edge_neg must lie in 0 .. 3, but"),
    ({"edge": np.array([["a", "b"]])}, "an array must hold numbers, but is 'U1'"),
    ({"edge": np.array([[{}, 1]], dtype=object)}, "an array must hold numbers, but is 'O8'"),
    ({"edge": EDGE, "year": YEAR[:2]}, r"the members have \[3, 2\] rows"),
    ({"source_node": YEAR}, "target_node"),
]


def test_what_does_not_fit_is_named_with_its_file(plain: Path) -> None:
    for train, text in WRONG_SPLITS:
        with pytest.raises(ValueError, match=rf"train\.pt .*{text}"):
            split(plain, train=train)


class ManyBytes:
    """Takes memory where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (1 << 20,)


class Attack:
    """Runs code where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_else_is_unpickled_and_torch_allows_as_before(plain: Path) -> None:
    before = torch.serialization.get_safe_globals()
    with pytest.raises(ValueError, match="is made of something other than an array"):
        split(plain, train={"edge": EDGE, "more": ManyBytes()})
    with pytest.raises(ValueError, match="without unpickling objects"):
        split(plain, train={"edge": EDGE, "more": Attack(plain / "touched")})
    assert not (plain / "touched").exists()
    assert torch.serialization.get_safe_globals() == before
    split(plain)
    torch.save({"edge": EDGE}, plain / "split" / "time" / "test.pt", pickle_protocol=4)
    with pytest.warns(UserWarning, match="protocol 4"), pytest.raises(ValueError, match="pickle_protocol"):
        read_ogb(plain)
    (plain / "split" / "time" / "test.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"test\.pt; unpack the archive again"):
        read_ogb(plain)


def test_damaged_files_are_clear_errors(plain: Path) -> None:
    split(plain, valid={"edge": EDGE, "edge_neg": WRONG})
    path, chance = plain / "split" / "time" / "valid.pt", random.Random(0)
    whole = path.read_bytes()
    errors = []
    for _ in range(60):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content if chance.random() < 0.7 else whole[: chance.randrange(len(whole))])
        try:
            read_ogb(plain)
        except ValueError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert all("valid.pt" in error for error in errors)
