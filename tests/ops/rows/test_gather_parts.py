import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import gather_parts

SIZES = [3, 0, 5]
ROWS = st.lists(st.sampled_from([(owner, place) for owner, size in enumerate(SIZES) for place in range(size)]))


@pytest.mark.parametrize("dtypes", [(torch.uint8, torch.int32), (torch.int32, torch.int64)], ids=str)
@pytest.mark.parametrize(("width", "dtype"), [(1, torch.bool), (0, torch.int64), (3, torch.int16), (70, torch.float64)])
@given(rows=ROWS, missing=st.sampled_from([None, 0, 2]))
def test_each_row_comes_from_its_part(
    dtypes: tuple[torch.dtype, torch.dtype],
    width: int,
    dtype: torch.dtype,
    rows: list[tuple[int, int]],
    missing: int | None,
) -> None:
    values = torch.arange(8 * width).view(8, width).to(dtype)
    # The second half of wider rows, which are not contiguous.
    parts = [part.repeat(1, 2)[:, width:] for part in torch.split(values, SIZES)]
    out = torch.ones(len(rows), width, dtype=dtype)
    wanted = [out[at] if owner == missing else parts[owner][place] for at, (owner, place) in enumerate(rows)]
    owners, places = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2).unbind(1)
    given = [None if number == missing else part for number, part in enumerate(parts)]
    gather_parts(given, owners.to(dtypes[0]), places.to(dtypes[1]), out)
    assert torch.equal(out, torch.stack(wanted) if wanted else out)


def test_there_may_be_more_parts_than_a_byte_counts() -> None:
    parts, out = [torch.tensor([[number]]) for number in range(300)], torch.zeros(2, 1, dtype=torch.int64)
    gather_parts(parts, torch.tensor([299, 1]), torch.tensor([0, 0]), out)
    assert out.tolist() == [[299], [1]]


@pytest.mark.parametrize(
    ("owners", "places", "message"),
    [
        ([0, 3], [0, 0], "owners must lie in 0 .. 2, but holds 3"),
        ([-1, 0], [0, 0], "owners must lie in 0 .. 2, but holds -1"),
        ([0, 2], [2, 5], "places in part 2 must lie in 0 .. 4, but hold 5"),
        ([1, 2], [0, 0], "places in part 1 must lie in 0 .. -1, but hold 0"),
        ([2, 2], [4, -1], "places in part 2 must lie in 0 .. 4, but hold -1"),
    ],
)
def test_rows_that_are_not_there_are_refused(owners: list[int], places: list[int], message: str) -> None:
    parts = [torch.zeros(size, 1) for size in SIZES]
    with pytest.raises(IndexError, match=message):
        gather_parts(parts, torch.tensor(owners), torch.tensor(places), torch.zeros(2, 1))


def test_wrong_arguments_are_named() -> None:
    one, row = torch.tensor([0]), torch.zeros(1, 2)
    with pytest.raises(ValueError, match="must have the same length, but have 1, 1 and 2"):
        gather_parts([row], one, one, torch.zeros(2, 2))
    with pytest.raises(ValueError, match="out must be contiguous"):
        gather_parts([row], one, one, torch.zeros(1, 4)[:, ::2])
    with pytest.raises(ValueError, match=r"part 1 must have rows as out, torch.float32 of shape \(2,\), but has"):
        gather_parts([row, row.double()], one, one, row)
    with pytest.raises(TypeError, match="owners must be"):
        gather_parts([row], one.bool(), one, row)
