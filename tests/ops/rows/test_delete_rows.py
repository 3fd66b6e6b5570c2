import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import delete_from_columns, delete_rows, match_pairs

COUNTS = st.lists(st.integers(0, 5), max_size=8)


def some_of(data: st.DataObject, count: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, count - 1))) if count else [])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.int32, torch.int64, torch.float32], ids=str)
@given(data=st.data(), rows=st.integers(0, 40), shape=st.sampled_from([(), (3,), (0,), (2, 2)]))
def test_the_other_rows_stay(dtype: torch.dtype, data: st.DataObject, rows: int, shape: tuple[int, ...]) -> None:
    values = torch.randint(0, 100, (rows, *shape)).to(dtype)
    gone = some_of(data, rows)
    stay = [row for row in range(rows) if row not in gone]
    result = delete_rows(values, torch.tensor(gone, dtype=torch.int64))
    assert result.dtype == dtype
    assert torch.equal(result, values[torch.tensor(stay, dtype=torch.int64)])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(data=st.data(), counts=COUNTS)
def test_columns_lose_what_goes(dtype: torch.dtype, data: st.DataObject, counts: list[int]) -> None:
    gone = some_of(data, sum(counts))
    columns = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
    left = torch.bincount(delete_rows(columns, torch.tensor(gone, dtype=torch.int64)), minlength=len(counts))
    indptr = torch.tensor([0, *counts]).cumsum(0).to(dtype)
    result = delete_from_columns(indptr, torch.tensor(gone, dtype=torch.int64))
    assert result.dtype == dtype
    assert torch.equal(result.long(), torch.cat([torch.tensor([0]), left]).cumsum(0))


def test_nothing_to_leave_out_costs_no_copy() -> None:
    values, none = torch.arange(3), torch.empty(0, dtype=torch.int64)
    assert delete_rows(values, none) is values
    assert delete_from_columns(values, none) is values


@pytest.mark.parametrize("inference", [False, True])
def test_places_of_edges_that_somebody_has_changed_are_refused(inference: bool) -> None:
    indptr, sources = torch.tensor([0, 2, 3]), torch.tensor([5, 7, 5])
    with torch.inference_mode(inference):
        places = match_pairs(indptr, sources, torch.tensor([1, 2]), torch.tensor([[7, 1]]))
        assert delete_rows(sources, places).tolist() == [5, 5]
        assert delete_from_columns(indptr, places).tolist() == [0, 1, 2]
        with pytest.raises(IndexError, match=r"places must lie in 0 .. 0, but hold 1"):
            delete_rows(sources[:1], places)
        places.numpy()[0] = 9  # which no version counter of torch notices
        with pytest.raises(IndexError, match=r"places must lie in 0 .. 2, but hold 9"):
            delete_rows(sources, places)
        with pytest.raises(IndexError, match=r"places must lie in 0 .. 2, but hold 9"):
            delete_from_columns(indptr, places)


def test_what_does_not_fit_is_named() -> None:
    values = torch.arange(3)
    for wrong, found in (([3], 3), ([-1, 0], -1)):
        with pytest.raises(IndexError, match=f"places must lie in 0 .. 2, but hold {found}"):
            delete_rows(values, torch.tensor(wrong))
        with pytest.raises(IndexError, match=f"places must lie in 0 .. 2, but hold {found}"):
            delete_from_columns(torch.tensor([0, 3]), torch.tensor(wrong))
    for unsorted in ([1, 0], [1, 1]):
        with pytest.raises(ValueError, match="places must ascend, without duplicates; sort them"):
            delete_rows(values, torch.tensor(unsorted))
    with pytest.raises(TypeError, match=r"places must be torch.int64, but is torch.int32"):
        delete_rows(values, torch.tensor([1], dtype=torch.int32))


def test_places_that_fall_write_nothing_beyond_the_result() -> None:
    ascending = torch.arange(0, 40, 5)
    with pytest.raises(ValueError, match="places must ascend"):
        delete_rows(torch.arange(40), torch.cat([ascending, ascending]))
