"""The owners of nodes, edges and rows; and errors for parts of another partition."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, Partitioner, assign_nodes, cut_graph, cut_rows, open_part, write_partition
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.golden_pipelines import NUM_NODES, numbers, typed, untyped
from tests.kinds.refusals import check_refused

PARTS = [0, 0, 1, 1, 1, 3]
BOOKS = [PartBook.from_bounds([0, 2, 5, 5, 6]), PartBook.from_assignment(torch.tensor(PARTS), num_parts=4)]
IDS = torch.arange(6)

each_book = pytest.mark.parametrize("book", BOOKS, ids=["bounds", "assignment"])


@each_book
def test_each_id_has_an_owner_and_a_place(book: PartBook) -> None:
    assert (book.num_ids, book.num_parts) == (6, 4)
    assert book.owners_of(IDS).tolist() == PARTS
    assert book.offsets_of(IDS).tolist() == [0, 1, 0, 1, 2, 0]
    assert [found.tolist() for found in book.locate(IDS)] == [PARTS, [0, 1, 0, 1, 2, 0]]
    assert [book.ids_of(part).tolist() for part in range(4)] == [[0, 1], [2, 3, 4], [], [5]]


@each_book
def test_some_consecutive_ids_have_a_book_of_their_own(book: PartBook) -> None:
    inner = book.within(1, 4)
    assert inner.owners_of(torch.arange(3)).tolist() == [0, 1, 1]
    assert inner.offsets_of(torch.arange(3)).tolist() == [0, 0, 1]
    assert inner.num_parts == 4


def test_parts_in_any_order_and_more_than_256() -> None:
    book = PartBook.from_assignment(torch.tensor([2, 0, 2, 1], dtype=torch.int32))
    assert book.num_parts == 3
    assert book.offsets_of(torch.tensor([2, 3], dtype=torch.int32)).tolist() == [1, 0]
    book = PartBook.from_assignment(torch.arange(300))
    assert book.owners_of(torch.tensor([299])).tolist() == [299]


RANDOM = numbers(NUM_NODES, 3, 90)


def test_the_assignment_may_be_by_type_or_a_book() -> None:
    graph = typed()
    by_type = assign_nodes(graph, 2, "hash")
    assert isinstance(by_type, dict)
    stacked = PartBook.from_assignment(torch.cat([by_type["user"], by_type["item"]]))
    first, second = cut_graph(graph, by_type, 1), cut_graph(graph, stacked, 1)
    assert torch.equal(first.columns.indices, second.columns.indices)
    assert torch.equal(first.book_of("item").ids_of(0), (by_type["item"] == 0).nonzero().view(-1))
    with pytest.raises(KeyError, match=r"'shop', but the graph has \['user', 'item'\]"):
        first.book_of("shop")


def test_what_is_no_part_or_assignment_is_refused() -> None:
    plain, by_type, book = untyped(), typed(), PartBook.from_assignment(torch.tensor([1, 0, 1]))

    def cut(graph: gf.FusedCSCSamplingGraph, assignment: Any, part: int = 0) -> object:
        return cut_graph(graph, assignment, part)

    def book_of(*parts: float, **options: int) -> PartBook:
        return PartBook.from_assignment(torch.tensor(parts), **options)

    check_refused(
        [
            (lambda: cut(plain, RANDOM[1:]), ValueError, "2000 values, one per node, but has 1999"),
            (lambda: cut(plain, RANDOM, 3), ValueError, r"part must be in 0 \.\. 2, but is 3"),
            (lambda: cut(plain, {"user": RANDOM}), TypeError, "must be a tensor for this graph, but is a dict"),
            (
                lambda: cut(by_type, {"user": RANDOM[:500]}),
                KeyError,
                r"types \['user', 'item'\], but has \['user'\]",
            ),
            (lambda: cut_rows(torch.zeros(2, 1), book, 0), ValueError, "3 rows, one per id of the book, but has 2"),
            (lambda: book_of(0, 2, num_parts=2), ValueError, r"parts in 0 \.\. 1, but has 2"),
            (lambda: book_of(0, -1), ValueError, "has -1"),
            (lambda: book_of(0.5), TypeError, "assignment"),
            *[
                (lambda bounds=bounds: PartBook.from_bounds(bounds), ValueError, "bounds must ascend from 0")
                for bounds in ([0], [1, 2], [0, 3, 2])
            ],
        ]
    )


BOOK = PartBook.from_assignment(torch.arange(100) % 2)


def changed(**fields: Any) -> gf.FusedCSCSamplingGraph:
    return gf.FusedCSCSamplingGraph(**{**graphs.plain().fields(), **fields})


def test_parts_that_are_cut_have_the_identity_of_the_graph_and_the_assignment() -> None:
    graph = graphs.plain()
    weights = {"weight": graph.edge_attribute("weight") + 1}
    identities = [
        cut_graph(graph, BOOK, 0).identity,
        cut_graph(changed(indices=(graph.indices + 1) % 100), BOOK, 0).identity,
        cut_graph(changed(edge_attributes={**graph.edge_attributes, **weights}), BOOK, 0).identity,
        cut_graph(changed(edge_attributes={}), BOOK, 0).identity,
        cut_graph(graph, PartBook.from_bounds([0, 50, 100]), 0).identity,
    ]
    assert len(set(identities)) == len(identities)
    assert cut_graph(graphs.plain(), BOOK, 1).identity == identities[0]


def write(root: Path, layout: str, graph: gf.FusedCSCSamplingGraph) -> Path:
    parts = assign_nodes(graphs.plain(), 2, "hash")
    if layout == "own":
        return write_partition(root, graph, parts, 2)
    Partitioner(graph, 2, root, method=parts).generate_partition()
    return root


@pytest.mark.parametrize("layout", ["own", "pyg"])
def test_a_part_of_another_graph_is_refused(tmp_path: Path, layout: str) -> None:
    root = write(tmp_path / "own", layout, graphs.plain())
    other = write(tmp_path / "other", layout, changed(indices=(graphs.plain().indices + 1) % 100))
    again = write(tmp_path / "again", layout, graphs.plain())
    identities = [open_part(folder, part).graph.identity for folder in (root, other, again) for part in range(2)]
    assert identities[::2] == identities[1::2]
    assert len(set(identities)) == 3
    shutil.rmtree(root / "part_1")
    shutil.copytree(other / "part_1", root / "part_1")
    with pytest.raises(ValueError, match="copy part 1 and the files next to it from the same partition"):
        open_part(root, 1)
