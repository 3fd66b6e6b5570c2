import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES, Graph, graphs

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(100, 112)), max_size=20)


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(graphs(), PAIRS)
def test_matches_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, graph: Graph, pairs: list[tuple[int, int]]
) -> None:
    indptr, sources = torch.tensor(graph.indptr), torch.tensor(graph.indices, dtype=dtype)
    columns = torch.arange(100, 100 + graph.num_nodes, dtype=dtype)
    wanted = torch.tensor(pairs, dtype=dtype).reshape(-1, 2)
    rows = torch.arange(graph.num_nodes).flip(0).to(dtype)
    given = (indptr, sources, columns, wanted, rows)
    expected = ops.match_pairs(*given), ops.match_pairs(*given[:4])
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, ops.match_pairs(*map(cuda.put, given)), expected[0])
            check_equal(cuda, ops.match_pairs(*map(cuda.put, given[:4])), expected[1])


def test_ids_of_64_bits_are_told_apart(cuda: Cuda) -> None:
    sources, pairs = torch.tensor([5, 2**32 + 5, 2**62 + 5]), torch.tensor([[2**32 + 5, 2**40]])
    given = (torch.tensor([0, 3]), sources, torch.tensor([2**40]), pairs)
    with cuda.running():
        result = ops.match_pairs(*map(cuda.put, given))
        check_equal(cuda, result, torch.tensor([1]))
