import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, assign_nodes, cut_graph, cut_rows
from graphfeed.distributed.graph_part import Assignment
from tests.golden_pipelines import NUM_EDGES, NUM_NODES, numbers, typed, untyped

RANDOM = numbers(NUM_NODES, 3, 90)


def test_parts_hold_each_edge_once_where_its_destination_is() -> None:
    graph = untyped()
    destinations = gf.expand_indptr(graph.csc_indptr, torch.int64)
    seen = torch.zeros(NUM_EDGES, dtype=torch.int64)
    for number in range(3):
        part = cut_graph(graph, RANDOM, number)
        ids = part.edge_ids()
        places = torch.argsort(graph.edge_attributes[gf.ORIGINAL_EDGE_ID])[ids]
        seen[places] += 1
        assert torch.equal(part.columns.indices, graph.indices[places])
        assert torch.equal(gf.expand_indptr(part.columns.csc_indptr, torch.int64), destinations[places])
        assert (RANDOM[destinations[places]] == number).all()
        assert torch.equal(part.columns.edge_attributes["weight"], graph.edge_attributes["weight"][places])
        assert part.num_edges == NUM_EDGES
    assert (seen == 1).all()


def test_an_edge_without_an_id_gets_its_position() -> None:
    graph = gf.fused_csc_sampling_graph(torch.tensor([0, 1, 1, 3]), torch.tensor([2, 0, 1]))
    part = cut_graph(graph, torch.tensor([0, 0, 1]), 1)
    assert gf.ORIGINAL_EDGE_ID not in part.columns.edge_attributes  # which would take 8 bytes per edge
    assert part.edge_ids().tolist() == [1, 2]


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


@pytest.mark.parametrize(
    ("graph", "assignment", "part", "error", "text"),
    [
        (untyped(), RANDOM[1:], 0, ValueError, "2000 values, one per node, but has 1999"),
        (untyped(), RANDOM, 3, ValueError, r"part must lie in 0 \.\. 2, but is 3"),
        (untyped(), {"user": RANDOM}, 0, TypeError, "must be a tensor for this graph, but is a dict"),
        (typed(), {"user": RANDOM[:500]}, 0, KeyError, r"types \['user', 'item'\], but has \['user'\]"),
    ],
)
def test_what_is_no_part_is_refused(
    graph: gf.FusedCSCSamplingGraph, assignment: Assignment, part: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        cut_graph(graph, assignment, part)


def test_rows_are_cut_as_the_book_says() -> None:
    book = PartBook.from_assignment(torch.tensor([1, 0, 1]))
    assert cut_rows(torch.tensor([[5], [6], [7]]), book, 1).tolist() == [[5], [7]]
    with pytest.raises(ValueError, match="3 rows, one per id of the book, but has 2"):
        cut_rows(torch.zeros(2, 1), book, 0)
