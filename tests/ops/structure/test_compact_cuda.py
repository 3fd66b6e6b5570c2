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


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12))
def test_marked_ids_are_those_of_the_cpu(cuda: Cuda, given: list[tuple[int, bool]]) -> None:
    ids, marks = torch.tensor([own for own, _ in given], dtype=torch.int64), torch.tensor([own for _, own in given])
    expected = ops.compact_marked(ids, marks.bool())
    for order in cuda.each_order():
        with order, cuda.running():
            found = ops.compact_marked(cuda.put(ids), cuda.put(marks.bool()))
            assert found.least == expected.least
            for mine, its in zip(found[:3], expected[:3], strict=True):
                check_equal(cuda, mine, its)
