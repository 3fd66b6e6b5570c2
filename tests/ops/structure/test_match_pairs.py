"""Look-up of pairs and of ids, held to a set; ids may be as large as they come."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.devices import Device, Put, results
from tests.ops.graphs import ID_DTYPES

SMALL = st.integers(0, 4)


LARGE = st.sampled_from([0, 1, 1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1, (1 << 62) + 1, (1 << 63) - 1])


def slow(indptr: list[int], sources: list[int], destinations: list[int], pairs: list[tuple[int, int]]) -> list[int]:
    ends = [node for column, node in enumerate(destinations) for _ in range(indptr[column], indptr[column + 1])]
    return [place for place, edge in enumerate(zip(sources, ends, strict=True)) if edge in set(pairs)]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.data(), st.sampled_from(ID_DTYPES))
def test_matches_are_those_of_a_set_of_tuples(
    device: Device, dtype: torch.dtype, data: st.DataObject, starts: torch.dtype
) -> None:
    node = data.draw(st.sampled_from([SMALL] if dtype == torch.int32 else [SMALL, LARGE]))
    columns = data.draw(st.lists(st.tuples(node, st.lists(node, max_size=6)), max_size=6))
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=12))
    indptr = reference.running_sum(len(sources) for _, sources in columns)
    sources = reference.join(sources for _, sources in columns)
    ends = [end for end, _ in columns]
    expected = slow(indptr, sources, ends, pairs)
    rows = list(dict.fromkeys(sources))
    local = [rows.index(source) for source in sources]
    given = [torch.tensor(indptr, dtype=starts)]
    given += [torch.tensor(part, dtype=dtype) for part in (sources, local, ends, pairs, rows)]

    def match(put: Put) -> list[torch.Tensor]:
        own, by_id, by_row, columns, wanted, names = map(put, given)
        wanted = wanted.reshape(-1, 2)
        return [ops.match_pairs(own, by_id, columns, wanted), ops.match_pairs(own, by_row, columns, wanted, names)]

    for found in results(device, match, each_order=True):
        assert {part.dtype for part in found} == {torch.int64}
        assert [part.tolist() for part in found] == [expected, expected]


def test_many_edges_and_pairs_are_matched() -> None:
    indptr, sources = torch.arange(0, 3001, 3), torch.randint(0, 50, (3000,))
    destinations, pairs = torch.randint(0, 50, (1000,)), torch.randint(0, 50, (400, 2))
    found = ops.match_pairs(indptr, sources, destinations, pairs)
    listed = [(source, destination) for source, destination in pairs.tolist()]
    assert found.tolist() == slow(indptr.tolist(), sources.tolist(), destinations.tolist(), listed)
    assert 0 < len(found) < 3000


IDS = st.lists(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1), max_size=30)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.sampled_from(ID_DTYPES), IDS, IDS)
def test_isin_equals_the_look_up_in_a_list(
    device: Device, dtype: torch.dtype, test_dtype: torch.dtype, elements: list[int], others: list[int]
) -> None:
    given = torch.tensor(elements, dtype=dtype), torch.tensor(others, dtype=test_dtype)
    for found in results(device, lambda put: ops.isin(*map(put, given))):
        assert found.dtype == torch.bool
        assert found.tolist() == [element in others for element in elements]
