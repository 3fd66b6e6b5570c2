import pytest
import torch

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_graph import check_graph, kernel_graph, shape_of

INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0])
TYPES = torch.tensor([0, 1, 1], dtype=torch.int64)
NUMBERS = torch.tensor([0, 3]), torch.tensor([[0, 0], [0, 0]]), torch.tensor([1, 0])


def test_kernels_get_int64_starts_and_narrow_types() -> None:
    own = kernel_graph(ops.HopGraph(INDPTR.int(), INDICES.int(), TYPES, *NUMBERS))
    assert own.indptr.dtype == torch.int64
    assert own.indices.dtype == torch.int32
    assert own.types is not None
    assert own.types.dtype == torch.int32


def test_arrays_in_the_dtypes_of_kernels_are_not_copied() -> None:
    types = TYPES.to(torch.uint8)
    own = kernel_graph(ops.HopGraph(INDPTR, INDICES, types, *NUMBERS))
    assert own.types is not None
    assert [part.data_ptr() for part in (own.indptr, own.indices, own.types)] == [
        part.data_ptr() for part in (INDPTR, INDICES, types)
    ]


def test_a_graph_without_types_has_one_of_each() -> None:
    assert shape_of(ops.HopGraph(INDPTR, INDICES)) == ((0, 3), (0,), (0,), (0,))
    assert shape_of(ops.HopGraph(INDPTR, INDICES, TYPES, *NUMBERS)) == ([0, 3], [0, 0], [0, 0], [1, 0])


def test_an_order_that_lacks_an_edge_type_is_named() -> None:
    graph = ops.HopGraph(INDPTR, INDICES, TYPES, *NUMBERS)._replace(order=torch.tensor([1, 1]))
    with pytest.raises(ValueError, match=r"order must hold each of the 2 edge types once, but is \[1, 1\]"):
        check_graph(graph)


def test_times_are_given_for_both_kinds_of_fan_outs() -> None:
    columns = ops.TemporalGraph(INDPTR, INDICES)
    with pytest.raises(ValueError, match="timed must hold 2 graphs, for one fan-out and for one per edge type, but"):
        check_graph(ops.HopGraph(INDPTR, INDICES, timed=(columns,)))
