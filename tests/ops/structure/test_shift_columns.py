import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.structure.shift_columns import shift_columns

COLUMNS = st.lists(st.tuples(st.integers(-(1 << 40), 1 << 40), st.lists(st.integers(0, 200), max_size=4)), max_size=9)


@given(columns=COLUMNS, dtype=st.sampled_from([torch.int32, torch.int64]))
def test_each_value_gets_the_shift_of_its_column(columns: list[tuple[int, list[int]]], dtype: torch.dtype) -> None:
    shifts = [shift % 1000 if dtype == torch.int32 else shift for shift, _ in columns]
    counts = torch.tensor([0, *(len(own) for _, own in columns)])
    values = torch.tensor([value for _, own in columns for value in own], dtype=torch.int64)
    found = shift_columns(counts.cumsum(0), values, torch.tensor(shifts, dtype=torch.int64), dtype)
    wanted = [value + shift for shift, (_, own) in zip(shifts, columns, strict=True) for value in own]
    assert (found.tolist(), found.dtype) == (wanted, dtype)


@pytest.mark.parametrize(
    ("offsets", "values", "shifts", "text"),
    [
        ([0, 2], [1], [0], "values must have 2 values"),
        ([0, 1], [1], [0, 0], "shifts must have 1 values, one per column"),
        ([0, 2, 1], [1], [0, 0], "offsets"),
        ([1, 1], [1], [0], "offsets"),
    ],
)
def test_what_does_not_fit_is_refused(offsets: list[int], values: list[int], shifts: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        shift_columns(torch.tensor(offsets), torch.tensor(values), torch.tensor(shifts))


def test_other_dtypes_are_refused() -> None:
    one = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"dtype must be int32 or int64, but is torch\.float32"):
        shift_columns(one, one[:0], one[:0], torch.float32)
    with pytest.raises(TypeError, match="shifts"):
        shift_columns(one, one[:0], one[:0].float())
