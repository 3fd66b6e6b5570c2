import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import ID_DTYPES


@st.composite
def typed_picks(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """Make picks, the graph's edge types, the node type of each column, and that which each edge type leads to."""
    destinations = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    column_types = sorted(draw(st.lists(st.integers(0, 2), max_size=10)))
    chance = random.Random(draw(st.integers(0, 2**32)))
    types: list[int] = []
    picked = []
    for kind in column_types:
        own = [edge_type for edge_type, end in enumerate(destinations) if end == kind]
        degree = chance.randrange(12) if own else 0
        segment = range(len(types), len(types) + degree)
        types += sorted(chance.choices(own, k=degree)) if own else []
        picked.append(chance.choices(segment, k=chance.randrange(15)) if degree else [])
    return picked, types, column_types, destinations


@given(typed_picks(), st.sampled_from(ID_DTYPES))
def test_grouping_equals_the_reference(
    given: tuple[list[list[int]], list[int], list[int], list[int]], dtype: torch.dtype
) -> None:
    picked, types, column_types, destinations = given
    indptrs, positions = reference.group_by_type(picked, types, column_types, destinations)
    picks = ops.Picks(
        torch.tensor(reference.running_sum(len(column) for column in picked)),
        torch.tensor(reference.join(picked), dtype=torch.int64),
    )
    typed = ops.group_by_type(
        picks,
        torch.tensor(types, dtype=torch.uint8),
        torch.tensor(reference.running_sum(column_types.count(kind) for kind in range(3))),
        torch.tensor(destinations),
        dtype,
    )
    assert typed.indptr.dtype == dtype
    assert typed.bounds.tolist() == reference.running_sum(len(part) for part in indptrs)
    assert typed.indptr.tolist() == reference.join(indptrs)
    assert typed.starts.tolist() == reference.running_sum(len(part) for part in positions)
    assert typed.positions.tolist() == reference.join(positions)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_types_of_every_dtype_give_the_same(dtype: torch.dtype) -> None:
    def group(types: torch.Tensor) -> ops.TypedPicks:
        picks = ops.Picks(torch.tensor([0, 2, 3]), torch.tensor([2, 0, 4]))
        return ops.group_by_type(picks, types, torch.tensor([0, 2]), torch.tensor([0, 0]), torch.int64)

    types = torch.tensor([0, 0, 1, 0, 1], dtype=torch.uint8)
    for own, expected in zip(group(types.to(dtype)), group(types), strict=True):
        assert torch.equal(own, expected)


def test_picks_that_int32_cannot_count_are_refused() -> None:
    picks = ops.Picks(torch.tensor([0, 2**31]), torch.zeros(1, dtype=torch.int64).expand(2**31))
    with pytest.raises(ValueError, match=r"2147483648 edges are too many for indptr of torch\.int32; make"):
        ops.group_by_type(picks, torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([0]), torch.int32)
