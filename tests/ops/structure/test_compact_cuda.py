from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES

NODES = st.lists(st.integers(0, 9), max_size=12)


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(NODES, NODES, st.sampled_from([1, 2**31 - 10]))
def test_rows_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, seeds: list[int], neighbors: list[int], last: int
) -> None:
    given = [torch.tensor([node + last - 1 for node in part], dtype=dtype) for part in (seeds, neighbors)]
    expected = ops.compact(*given)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, ops.compact(*map(cuda.put, given)), expected)


@given(st.lists(NODES, min_size=3, max_size=3), st.lists(st.tuples(st.integers(0, 2), NODES), max_size=5))
def test_rows_by_type_are_those_of_the_cpu(
    cuda: Cuda, seeds: list[list[int]], neighbors: list[tuple[int, list[int]]]
) -> None:
    def of_type(kind: int, nodes: list[int]) -> list[int]:
        return [10 * kind + node for node in nodes]

    ids = torch.tensor([node for kind, own in enumerate(seeds) for node in of_type(kind, own)], dtype=torch.int64)
    ends = torch.tensor([node for kind, own in neighbors for node in of_type(kind, own)], dtype=torch.int64)
    parts = {
        "seed_starts": torch.tensor(list(accumulate(map(len, seeds), initial=0))),
        "neighbor_starts": torch.tensor(list(accumulate((len(own) for _, own in neighbors), initial=0))),
        "sources": torch.tensor([kind for kind, _ in neighbors], dtype=torch.int64),
    }
    expected = ops.compact_parts(ids, ends, **parts, num_nodes=30)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, ops.compact_parts(cuda.put(ids), cuda.put(ends), **parts, num_nodes=30), expected)
