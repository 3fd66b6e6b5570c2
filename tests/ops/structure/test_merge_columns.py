import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.structure.merge_columns import merge_columns

COLUMNS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 200), max_size=5)), max_size=12)
WIDTHS = [
    (torch.int32, torch.int64),
    (torch.int64, torch.int64),
    (torch.int32, torch.int32),
    (torch.uint8, torch.uint8),
]


@given(columns=COLUMNS, widths=st.sampled_from(WIDTHS))
def test_each_column_comes_to_its_place(
    columns: list[tuple[int, list[int]]], widths: tuple[torch.dtype, torch.dtype]
) -> None:
    sent, dtype = widths
    places, counts, values = [], [], []
    for part in range(3):
        own = [place for place, (owner, _) in enumerate(columns) if owner == part]
        edges = [edge for place in own for edge in columns[place][1]]
        places.append(torch.tensor(own, dtype=torch.int64))
        counts.append(torch.tensor([len(columns[place][1]) for place in own], dtype=torch.int32))
        values.append([torch.tensor(edges, dtype=sent), torch.tensor(edges, dtype=torch.int64) << 40])
    offsets, (small, large) = merge_columns(places, counts, values, [dtype, torch.int64])
    edges = [edge for _, column in columns for edge in column]
    assert (small.tolist(), small.dtype) == (edges, dtype)
    assert large.tolist() == [edge << 40 for edge in edges]
    assert offsets.diff().tolist() == [len(column) for _, column in columns]
    assert int(offsets[0]) == 0


@pytest.mark.parametrize(
    ("places", "counts", "values", "text"),
    [
        ([0, 2], [1, 1], [5, 6], "places must lie in 0 .. 1"),
        ([0, -1], [1, 1], [5, 6], "places must lie in 0 .. 1"),
        ([0, 0], [1, 1], [5, 6], "places must be all different"),
        ([0, 1], [3, -1], [5, 6], "counts must be 0 or more and add up to the 2 values"),
        ([0, 1], [1, 0], [5, 6], "counts must be 0 or more and add up to the 2 values"),
        ([0, 1], [1, 1 << 62], [5, 6], "counts must be 0 or more and add up to the 2 values"),
        ([0], [1, 1], [5, 6], "places and counts of a part must be equally long"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    places: list[int], counts: list[int], values: list[int], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        merge_columns([torch.tensor(places)], [torch.tensor(counts)], [[torch.tensor(values)]], [torch.int64])


def test_values_are_never_cut() -> None:
    with pytest.raises(TypeError, match=r"values of torch.int64 can't be written as torch.int32"):
        merge_columns([torch.arange(1)], [torch.ones(1, dtype=torch.int64)], [[torch.arange(1)]], [torch.int32])


def test_arrays_of_a_part_are_as_many_as_dtypes_and_equally_long() -> None:
    one, two = torch.arange(1), torch.arange(2)
    with pytest.raises(ValueError, match="a part must have 1 arrays of values, at least one, but has 2"):
        merge_columns([one], [one + 1], [[one, one]], [torch.int64])
    with pytest.raises(ValueError, match=r"values of a part must be equally long, but are \[1, 2\]"):
        merge_columns([one], [one + 1], [[one, two]], [torch.int64] * 2)
