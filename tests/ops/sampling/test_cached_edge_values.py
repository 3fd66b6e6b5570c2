import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.sampling.cached_edge_values import NOT_KEPT, KeptEdges, read_edges
from graphfeed.ops.sampling.sample_neighbors import Picks

DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]
Case = tuple[torch.Tensor, torch.Tensor, Picks, torch.Tensor]
COLUMNS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12)


def make_case(columns: list[tuple[int, bool]], dtype: torch.dtype) -> Case:
    """Return values, copies of some columns, picks of every second edge of each, last column first, and the shifts."""
    values = torch.randint(0, 100, (sum(count for count, _ in columns),)).to(dtype)
    starts = [sum(count for count, _ in columns[:place]) for place in range(len(columns))]
    kept, shifts, picks = [values[:0]], [], []
    for start, (count, has_copy) in reversed(list(zip(starts, columns, strict=True))):
        shifts.append(sum(map(len, kept)) - start if has_copy else NOT_KEPT)
        if has_copy:
            kept.append(values[start : start + count])
        picks.append(list(range(start, start + count, 2)))
    offsets = torch.tensor([0, *map(len, picks)]).cumsum(0)
    positions = torch.tensor([place for part in picks for place in part], dtype=torch.int64)
    return values, torch.cat(kept), Picks(offsets, positions), torch.tensor(shifts, dtype=torch.int64)


@given(COLUMNS, st.sampled_from(DTYPES))
def test_copies_are_read_as_what_they_copy(columns: list[tuple[int, bool]], dtype: torch.dtype) -> None:
    values, kept, picks, shifts = make_case(columns, dtype)
    assert torch.equal(read_edges(KeptEdges(values, kept, shifts), *picks), values[picks.positions])


def test_where_there_is_a_copy_it_is_read() -> None:
    values, kept, picks, shifts = make_case([(3, True), (2, False), (4, True)], torch.int64)
    found = read_edges(KeptEdges(values, kept + 1000, shifts), *picks)
    assert (found - values[picks.positions]).tolist() == [1000, 1000, 0, 1000, 1000]


def test_wrong_arguments_are_named() -> None:
    values, kept, picks, shifts = make_case([(3, True)], torch.int64)
    with pytest.raises(TypeError, match=r"kept must be torch.int64 as values, but is torch.int32"):
        read_edges(KeptEdges(values, kept.int(), shifts), *picks)
    with pytest.raises(TypeError, match=r"shifts must be torch.int64, but is torch.int32"):
        read_edges(KeptEdges(values, kept, shifts.int()), *picks)
    with pytest.raises(ValueError, match="shifts must have 1 values, one a column, but has 2"):
        read_edges(KeptEdges(values, kept, shifts.repeat(2)), *picks)
