import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import Picks
from graphfeed.ops.sampling.cached_edge_values import NOT_CACHED, CachedEdgeValues, read_edges

DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]
Case = tuple[torch.Tensor, torch.Tensor, Picks, torch.Tensor]
COLUMNS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12)


def make_case(columns: list[tuple[int, bool]], dtype: torch.dtype) -> Case:
    """Return values, cached columns, picks of every second edge of each, last column first, and the cache offsets."""
    values = torch.randint(0, 100, (sum(count for count, _ in columns),)).to(dtype)
    starts = [sum(count for count, _ in columns[:place]) for place in range(len(columns))]
    cached, cache_offsets, picks = [values[:0]], [], []
    for start, (count, has_copy) in reversed(list(zip(starts, columns, strict=True))):
        cache_offsets.append(sum(map(len, cached)) - start if has_copy else NOT_CACHED)
        if has_copy:
            cached.append(values[start : start + count])
        picks.append(list(range(start, start + count, 2)))
    offsets = torch.tensor([0, *map(len, picks)]).cumsum(0)
    positions = torch.tensor([place for part in picks for place in part], dtype=torch.int64)
    return values, torch.cat(cached), Picks(offsets, positions), torch.tensor(cache_offsets, dtype=torch.int64)


@given(COLUMNS, st.sampled_from(DTYPES))
def test_copies_are_read_as_what_they_copy(columns: list[tuple[int, bool]], dtype: torch.dtype) -> None:
    values, cached, picks, cache_offsets = make_case(columns, dtype)
    assert torch.equal(read_edges(CachedEdgeValues(values, cached, cache_offsets), *picks), values[picks.positions])


def test_wrong_arguments_are_named() -> None:
    values, cached, picks, cache_offsets = make_case([(3, True)], torch.int64)
    with pytest.raises(TypeError, match=r"cached must be torch.int64 as values, but is torch.int32"):
        read_edges(CachedEdgeValues(values, cached.int(), cache_offsets), *picks)
    with pytest.raises(TypeError, match=r"cache_offsets must be torch.int64, but is torch.int32"):
        read_edges(CachedEdgeValues(values, cached, cache_offsets.int()), *picks)
    with pytest.raises(ValueError, match=r"positions must lie in 0 \.\. 2, but holds 3"):
        read_edges(CachedEdgeValues(values, cached, cache_offsets), picks.offsets, picks.positions + 1)
    with pytest.raises(ValueError, match="cache_offsets must have 1 values, one per column, but has 2"):
        read_edges(CachedEdgeValues(values, cached, cache_offsets.repeat(2)), *picks)
