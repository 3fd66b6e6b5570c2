"""Look-up of pairs, held to a set of tuples; ids may be as large as they come."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import match_pairs

SMALL = st.integers(0, 4)
LARGE = st.sampled_from([0, 1, 1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1, (1 << 62) + 1, (1 << 63) - 1])


def slow(indptr: list[int], sources: list[int], destinations: list[int], pairs: list[tuple[int, int]]) -> list[int]:
    ends = [node for column, node in enumerate(destinations) for _ in range(indptr[column], indptr[column + 1])]
    return [place for place, edge in enumerate(zip(sources, ends, strict=True)) if edge in set(pairs)]


@given(data=st.data(), node=st.sampled_from([SMALL, LARGE]))
def test_it_equals_a_set_of_tuples(data: st.DataObject, node: st.SearchStrategy[int]) -> None:
    columns = data.draw(st.lists(st.tuples(node, st.lists(node, max_size=6)), max_size=6))
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=12))
    indptr = [0]
    for _, sources in columns:
        indptr.append(indptr[-1] + len(sources))
    sources = [source for _, column in columns for source in column]
    destinations = [destination for destination, _ in columns]
    int64 = torch.int64
    found = match_pairs(
        torch.tensor(indptr),
        torch.tensor(sources, dtype=int64),
        torch.tensor(destinations, dtype=int64),
        torch.tensor(pairs, dtype=int64).reshape(-1, 2),
    )
    assert found.dtype == torch.int64
    assert found.tolist() == slow(indptr, sources, destinations, pairs)
    rows = list(dict.fromkeys(sources))
    local = torch.tensor([rows.index(source) for source in sources], dtype=int64)
    ends, wanted = torch.tensor(destinations, dtype=int64), torch.tensor(pairs, dtype=int64).reshape(-1, 2)
    again = match_pairs(torch.tensor(indptr), local, ends, wanted, torch.tensor(rows, dtype=int64))
    assert torch.equal(again, found)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("starts", [torch.int32, torch.int64])
def test_many_edges_of_every_dtype(dtype: torch.dtype, starts: torch.dtype) -> None:
    indptr = torch.arange(0, 3001, 3, dtype=starts)
    sources = torch.randint(0, 50, (3000,), dtype=dtype)
    destinations = torch.randint(0, 50, (1000,), dtype=dtype)
    pairs = torch.randint(0, 50, (400, 2), dtype=dtype)
    found = match_pairs(indptr, sources, destinations, pairs)
    listed = [(source, destination) for source, destination in pairs.tolist()]
    assert found.tolist() == slow(indptr.tolist(), sources.tolist(), destinations.tolist(), listed)
    assert 0 < len(found) < 3000


def test_what_does_not_fit_is_named() -> None:
    indptr, ids = torch.tensor([0, 1]), torch.tensor([0])
    with pytest.raises(ValueError, match=r"pairs must have shape \(N, 2\), .* but has \(2,\)"):
        match_pairs(indptr, ids, ids, torch.tensor([0, 1]))
    with pytest.raises(TypeError, match=r"pairs must be torch.int32 or torch.int64, but is torch.float32"):
        match_pairs(indptr, ids, ids, torch.zeros(1, 2))
    with pytest.raises(TypeError, match=r"indices must be torch.int32 or torch.int64, but is torch.float32"):
        match_pairs(indptr, ids.float(), ids, torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"a column for each of 2 destinations .* but has 1 columns"):
        match_pairs(indptr, ids, torch.tensor([0, 1]), torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"^indices must lie in 0 .. 0, but holds 3"):
        match_pairs(indptr, torch.tensor([3]), ids, torch.tensor([[0, 1]]), rows=ids)
