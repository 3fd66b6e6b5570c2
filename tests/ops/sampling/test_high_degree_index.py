from importlib import import_module
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops

MODULE = import_module("graphfeed.ops.sampling.high_degree_index")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 4))
def test_entries_are_the_edges_into_the_largest_columns(dtype: torch.dtype, seed: int, least: int, part: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, 30, (2, 300), generator=generator)
    indptr, indices, _ = ops.coo_to_csc(ends[0], ends[1] ** 2 // 30, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "MIN_DEGREE", least)
        patch.setattr(MODULE, "MAX_SHARE", part)
        columns, degrees, starts, entries = ops.build_high_degree_index(indptr.to(dtype), indices.to(dtype))
    sizes = indptr.diff()
    by_size = sorted((size, column) for column, size in enumerate(sizes.tolist()) if size >= least)
    while sum(size for size, _ in by_size) > 300 // part:
        by_size.pop(0)
    assert list(zip(degrees.tolist(), columns.tolist(), strict=True)) == by_size
    found = [(node, entry) for node, own in enumerate(pairwise(starts.tolist())) for entry in entries[slice(*own)]]
    edges = [
        (int(indices[indptr[column] + place]), (number << 32) + place)
        for number, (size, column) in enumerate(by_size)
        for place in range(size)
    ]
    assert [(node, int(entry)) for node, entry in found] == sorted(edges)


def test_a_graph_of_small_columns_has_no_index() -> None:
    index = ops.build_high_degree_index(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 1]))
    assert [len(part) for part in index] == [0, 0, 1, 0]


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(TypeError, match=r"indices must be torch\.int32"):
        ops.build_high_degree_index(torch.tensor([0, 1]), torch.tensor([0.5]))
