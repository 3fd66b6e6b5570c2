from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES, Graph, graphs

EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(EDGES)
def test_columns_are_those_of_the_cpu(cuda: Cuda, dtype: torch.dtype, edges: list[tuple[int, int]]) -> None:
    sources, destinations = torch.tensor(edges, dtype=dtype).reshape(-1, 2).T.contiguous()
    expected = ops.coo_to_csc(sources, destinations, 6)
    with cuda.running():
        check_equal(cuda, ops.coo_to_csc(cuda.put(sources), cuda.put(destinations), 6), expected)


@pytest.mark.parametrize("dtype", ID_DTYPES)
@pytest.mark.parametrize("ids_dtype", ID_DTYPES)
@given(graphs())
def test_columns_expand_as_on_the_cpu(cuda: Cuda, dtype: torch.dtype, ids_dtype: torch.dtype, graph: Graph) -> None:
    indptr = torch.tensor(graph.indptr, dtype=dtype)
    ids = torch.arange(100, 100 + graph.num_nodes, dtype=ids_dtype)
    expected = ops.expand_indptr(indptr, node_ids=ids), ops.expand_indptr(indptr, dtype=dtype)
    with cuda.running():
        check_equal(cuda, ops.expand_indptr(cuda.put(indptr), node_ids=cuda.put(ids)), expected[0])
        check_equal(cuda, ops.expand_indptr(cuda.put(indptr), dtype=dtype), expected[1])


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(graphs())
def test_edges_are_numbered_as_on_the_cpu(cuda: Cuda, dtype: torch.dtype, graph: Graph) -> None:
    indptr = torch.tensor(graph.indptr, dtype=dtype)
    offset = 100 * torch.arange(graph.num_nodes)
    expected = ops.indptr_edge_ids(indptr, offset=offset), ops.indptr_edge_ids(indptr)
    with cuda.running():
        check_equal(cuda, ops.indptr_edge_ids(cuda.put(indptr), offset=cuda.put(offset)), expected[0])
        check_equal(cuda, ops.indptr_edge_ids(cuda.put(indptr)), expected[1])


def test_a_graph_is_checked_as_on_the_cpu(cuda: Cuda) -> None:
    indptr, indices = torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 2])
    with cuda.running():
        ops.check_csc(cuda.put(indptr), cuda.put(indices))
        with pytest.raises(ValueError, match="must not fall, but goes from 3 to 1 at node 1"):
            ops.check_csc(cuda.put(torch.tensor([0, 3, 1, 0, 3])), cuda.put(indices))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_types_are_checked_as_on_the_cpu(cuda: Cuda, dtype: torch.dtype) -> None:
    indptr, indices = torch.tensor([0, 2, 2, 4]), torch.tensor([0, 1, 2, 0])
    ends = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]])
    offsets = torch.tensor([0, 1, 3])

    def check(types: list[int], hold: Any) -> None:
        kinds = cuda.put(torch.tensor(types, dtype=dtype))
        ops.check_edge_types(hold(indptr), kinds, 4)
        ops.check_joined(hold(indptr), hold(indices), kinds, offsets, ends)

    for hold in (cuda.put, cuda.pin):
        with cuda.running():
            check([0, 1, 2, 3], hold)
            with pytest.raises(ValueError, match="falls at 2"):
                check([0, 1, 3, 2], hold)
            with pytest.raises(ValueError, match="says 3 of edge 2,"):
                check([0, 1, 3, 3], hold)
