import pytest
import torch

from graphfeed.distributed import PartBook

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


def test_parts_in_any_order() -> None:
    book = PartBook.from_assignment(torch.tensor([2, 0, 2, 1], dtype=torch.int32))
    assert book.num_parts == 3
    assert book.offsets_of(torch.tensor([2, 3], dtype=torch.int32)).tolist() == [1, 0]


def test_more_than_256_parts() -> None:
    book = PartBook.from_assignment(torch.arange(300))
    assert book.owners_of(torch.tensor([299])).tolist() == [299]


def test_what_is_no_assignment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"parts in 0 \.\. 1, but holds 2"):
        PartBook.from_assignment(torch.tensor([0, 2]), num_parts=2)
    with pytest.raises(ValueError, match="holds -1"):
        PartBook.from_assignment(torch.tensor([0, -1]))
    with pytest.raises(TypeError, match="assignment"):
        PartBook.from_assignment(torch.tensor([0.5]))


@pytest.mark.parametrize("bounds", [[0], [1, 2], [0, 3, 2]])
def test_what_are_no_bounds_is_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="bounds must ascend from 0"):
        PartBook.from_bounds(bounds)
