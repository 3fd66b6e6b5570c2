import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import coo_to_csc
from graphfeed.ops.structure.join_columns import join_columns

NODES = 5
EDGES = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=12)
DTYPES = st.sampled_from([torch.int32, torch.int64])


@given(lists=st.lists(EDGES, max_size=4), dtype=DTYPES)
def test_edges_come_column_by_column_one_list_behind_the_other(
    lists: list[list[tuple[int, int]]], dtype: torch.dtype
) -> None:
    parts, expected = [], []
    for number, edges in enumerate(lists):
        sources, destinations = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
        columns = coo_to_csc(sources, destinations, NODES)
        parts.append([part.to(dtype) for part in (columns.indptr, columns.indices, columns.order + 100 * number)])
        numbered = [(end, place, source) for place, (source, end) in enumerate(edges)]
        expected += [[source, end, place + 100 * number] for end, place, source in sorted(numbered)]
    found = join_columns(*([own[place] for own in parts] for place in range(3)))
    assert found.dtype == torch.int64
    assert found.T.tolist() == expected


@pytest.mark.parametrize(
    ("indptr", "text"),
    [([1, 2], "indptr"), ([0, 2, 1, 3], "indptr"), ([0, 1], "must end at 3"), ([0, 9, 3], "indptr")],
)
def test_columns_that_are_none_are_refused(indptr: list[int], text: str) -> None:
    ids = torch.arange(3)
    with pytest.raises(ValueError, match=text):
        join_columns([torch.tensor(indptr)], [ids], [ids])


def test_each_edge_needs_an_id() -> None:
    with pytest.raises(ValueError, match="an id for each of its edges"):
        join_columns([torch.tensor([0, 2])], [torch.arange(2)], [torch.arange(1)])
