import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import open_part, write_partition
from graphfeed.interop.graphlearn import read_chunks, read_graphlearn
from tests.digests import assert_same
from tests.distributed.pyg.test_partition_pyg_layout import Touches
from tests.pipelines import random_edges
from tests.tensors import DTYPES

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
    (root / "META").write_bytes(pickle.dumps(Touches(root / "touched")))


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
    assert not (tmp_path / "touched").exists()


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


def test_tensors_of_all_dtypes_are_read(tmp_path: Path) -> None:
    for number, dtype in enumerate(DTYPES):
        view = torch.ones(4, 4).to(dtype)[1:, ::2]
        tensors = [torch.arange(6).reshape(2, 3).to(dtype), view, torch.empty(0, 3, dtype=dtype)]
        path = tmp_path / f"{number}.pkl"
        for tensor in tensors:
            append(path, tensor)
        assert [tensor.tolist() for tensor in read_chunks(path)] == [tensor.tolist() for tensor in tensors]
        assert all(tensor.dtype == dtype for tensor in read_chunks(path))


class OutOfBounds:
    """Pickles as a tensor that is larger than its storage."""

    def __reduce__(self) -> Any:
        tensor: Any = torch.zeros(3)
        function, arguments = tensor.__reduce_ex__(2)[:2]
        return function, (arguments[0], 0, (1 << 20,), (1,), *arguments[4:])


def test_nothing_is_unpickled_but_tensors(tmp_path: Path) -> None:
    for value in (Touches(tmp_path / "touched"), OutOfBounds(), [1], {"a": print}):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(value))
        with pytest.raises(ValueError, match=r"a\.pkl"):
            read_chunks(tmp_path / "a.pkl")
    assert not (tmp_path / "touched").exists()
    for content in (b"", pickle.dumps(torch.zeros(9))[:-5], b"garbage"):
        (tmp_path / "a.pkl").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.pkl"):
            read_chunks(tmp_path / "a.pkl")


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
