import pickle
from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import open_part, write_partition
from graphfeed.interop import read_graphlearn
from tests.kinds.digests import assert_same
from tests.kinds.pipelines import random_edges
from tests.kinds.tensors import DTYPES

SIZES = {"user": 30, "item": 12}
EDGES = {"user__likes__item": random_edges(30, 12, 80, 0), "item__of__user": random_edges(12, 30, 60, 1)}


def append(path: Path, tensor: torch.Tensor) -> None:
    """Write a tensor as GraphLearn-for-PyTorch does, behind what is in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        pickle.dump(tensor, file)


def save(path: Path, tensor: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensor, path)


def write_graphlearn(root: Path, nodes: dict[str, int], edges: dict[str, torch.Tensor], num_parts: int = 2) -> None:
    """Write what GraphLearn's random partitioner writes, with each edge in the part of its source."""
    generator = torch.Generator().manual_seed(0)
    books = {kind: torch.randint(0, num_parts, (size,), generator=generator) for kind, size in nodes.items()}
    for kind, book in books.items():
        save(root / "node_pb" / f"{kind}.pt" if kind else root / "node_pb.pt", book)
        for part in range(num_parts):
            ids = torch.nonzero(book == part).flatten()
            for chunk in ids.flip(0).chunk(3):
                append(root / f"part{part}" / "node_feat" / kind / "ids.pkl", chunk)
                append(root / f"part{part}" / "node_feat" / kind / "feats.pkl", chunk[:, None] * torch.ones(1, 4))
    for kind, ends in edges.items():
        owner = books[kind.split("__")[0]][ends[0]]
        save(root / "edge_pb" / f"{kind}.pt" if kind else root / "edge_pb.pt", owner)
        for part in range(num_parts):
            ids = torch.nonzero(owner == part).flatten()
            place = root / f"part{part}" / "graph" / kind
            for name, values in (("rows", ends[0]), ("cols", ends[1]), ("weights", torch.arange(ends.shape[1]) / 2)):
                save(place / f"{name}.pt", values[ids])
            save(place / "eids.pt", ids)


def test_the_parts_of_a_graph_with_types_come_together(tmp_path: Path) -> None:
    write_graphlearn(tmp_path, SIZES, EDGES)
    graph, assignment, num_parts, features = read_graphlearn(tmp_path)
    assert num_parts == 2
    named = {kind.replace("__", ":"): ends for kind, ends in sorted(EDGES.items())}
    weights = {kind: torch.arange(ends.shape[1]) / 2 for kind, ends in named.items()}
    expected = gf.from_coo(named, dict(sorted(SIZES.items())), edge_attributes={"weights": weights})
    assert_same(graph.fields(), expected.fields())
    assert isinstance(assignment, dict)
    for kind, size in SIZES.items():
        assert_same(assignment[kind], torch.load(tmp_path / "node_pb" / f"{kind}.pt"))
        assert_same(features.read("node", kind, "feat"), torch.arange(size)[:, None] * torch.ones(1, 4))


def test_what_was_read_can_be_written_as_our_own_parts(tmp_path: Path) -> None:
    write_graphlearn(tmp_path / "theirs", {"": 30}, {"": random_edges(30, 30, 80, 0)}, num_parts=3)
    whole = read_graphlearn(tmp_path / "theirs")
    root = write_partition(tmp_path / "ours", whole.graph, whole.assignment, whole.num_parts, whole.features)
    assert isinstance(whole.assignment, torch.Tensor)
    for part in range(3):
        stored = open_part(root, part, check=True)
        ids = torch.nonzero(whole.assignment == part).flatten()
        assert_same(stored.graph.book.ids_of(part), ids)
        assert_same(stored.features.read("node", None, "feat"), ids[:, None] * torch.ones(1, 4))


def test_rows_of_all_dtypes_are_read(tmp_path: Path) -> None:
    for number, dtype in enumerate(DTYPES):
        root = tmp_path / str(number)
        write_graphlearn(root, {"": 4}, {"": random_edges(4, 4, 8, 0)}, num_parts=1)
        rows = torch.ones(8, 4).to(dtype)[::2, ::2]
        path = root / "part0" / "node_feat" / "feats.pkl"
        path.unlink()
        for tensor in (rows[:3], torch.empty(0, 2, dtype=dtype), rows[3:]):
            append(path, tensor)
        found = read_graphlearn(root).features.read("node", None, "feat")
        assert (found.dtype, found.tolist()) == (dtype, rows.tolist())


def test_parts_that_are_missing_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"node_pb\.pt"):
        read_graphlearn(tmp_path)
    write_graphlearn(tmp_path, {"": 30}, {"": random_edges(30, 30, 80, 0)})
    (tmp_path / "part1").rename(tmp_path / "part2")
    with pytest.raises(ValueError, match="the parts must have 80 edges of None, without duplicates"):
        read_graphlearn(tmp_path)
    (tmp_path / "part0").rename(tmp_path / "part3")
    with pytest.raises(FileNotFoundError, match="there is no folder part0"):
        read_graphlearn(tmp_path)
