from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import DEGREES, ID_DTYPES, TYPE_DTYPES, strided

MODULE = import_module("graphfeed.ops.structure.csc")

INDPTR = torch.tensor([0, 2, 2, 3])
INDICES = torch.tensor([2, 0, 1])


@pytest.mark.parametrize("source_dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("destination_dtype", ID_DTYPES, ids=str)
@given(st.integers(1, 12), st.data())
def test_coo_to_csc_equals_the_reference(
    source_dtype: torch.dtype, destination_dtype: torch.dtype, num_nodes: int, data: st.DataObject
) -> None:
    ids = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(ids, ids), max_size=60))
    sources, destinations = [edge[0] for edge in edges], [edge[1] for edge in edges]
    result = ops.coo_to_csc(
        torch.tensor(sources, dtype=source_dtype), torch.tensor(destinations, dtype=destination_dtype), num_nodes
    )
    assert result.indptr.dtype == result.order.dtype == torch.int64
    assert result.indices.dtype == source_dtype
    assert tuple(part.tolist() for part in result) == reference.coo_to_csc(sources, destinations, num_nodes)
    ops.check_csc(result.indptr, result.indices)


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_coo_to_csc_without_edges(num_nodes: int) -> None:
    none = torch.tensor([], dtype=torch.int32)
    result = ops.coo_to_csc(none, none, num_nodes)
    assert result.indptr.tolist() == [0] * (num_nodes + 1)
    assert result.indices.dtype == torch.int32
    assert result.indices.tolist() == result.order.tolist() == []


@pytest.mark.parametrize(
    ("sources", "destinations", "error", "message"),
    [
        ([0, 1], [0], ValueError, "sources and destinations must be equally long, but have 2 and 1 ids"),
        ([0, 3], [0, 1], ValueError, "sources must lie in 0 .. 2, but holds 3"),
        ([0, 1], [-1, 1], ValueError, "destinations must lie in 0 .. 2, but holds -1"),
        ([0.5], [1], TypeError, "sources must be torch.int32 or torch.int64, but is torch.float32"),
        ([0], [True], TypeError, "destinations must be .*, but is torch.bool"),
        ([[0]], [0], ValueError, r"sources must have 1 dimension, but has shape \(1, 1\)"),
    ],
)
def test_wrong_edge_lists_are_named(
    sources: list[Any], destinations: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ops.coo_to_csc(torch.tensor(sources), torch.tensor(destinations), 3)


@pytest.mark.parametrize("indptr_dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_graphs_pass(indptr_dtype: torch.dtype, dtype: torch.dtype) -> None:
    ops.check_csc(INDPTR.to(indptr_dtype), INDICES.to(dtype))
    ops.check_csc(torch.tensor([0], dtype=indptr_dtype), torch.tensor([], dtype=dtype))
    ops.check_csc(torch.tensor([0, 0, 0], dtype=indptr_dtype), torch.tensor([], dtype=dtype))
    ops.check_csc(strided(INDPTR.to(indptr_dtype)), strided(INDICES.to(dtype)))


@pytest.mark.parametrize(
    ("indptr", "indices", "error", "message"),
    [
        ([], [], TypeError, "csc_indptr must be .*, but is torch.float32"),
        ([0.0, 1.0], [0], TypeError, "csc_indptr must be .*, but is torch.float32"),
        ([[0, 1]], [0], ValueError, r"csc_indptr must have 1 dimension, but has shape \(1, 2\)"),
        ([1, 3], [0, 0, 0], ValueError, r"csc_indptr must start with 0, but is \[1, 3\]..."),
        ([0, 2], [0, 0, 0], ValueError, r"csc_indptr must end with the number of edges, 3 .*, but ends with 2"),
        ([0, 4], [0, 0, 0], ValueError, r"csc_indptr must end with the number of edges, 3 .*, but ends with 4"),
        ([0, 3, 1, 3], [0, 0, 0], ValueError, "csc_indptr must not fall, but goes from 3 to 1 at node 1"),
        ([0, -1, 3], [0, 0, 0], ValueError, "csc_indptr must not fall, but goes from 0 to -1 at node 0"),
        ([0, 1, 3], [0, 2, 0], ValueError, "indices must lie in 0 .. 1, but holds 2"),
        ([0, 1, 3], [0, -2, 0], ValueError, "indices must lie in 0 .. 1, but holds -2"),
        ([0, 1], [0.0], TypeError, "indices must be .*, but is torch.float32"),
        ([0, 1], [[0]], ValueError, r"indices must have 1 dimension, but has shape \(1, 1\)"),
    ],
)
def test_what_is_no_graph_is_named(indptr: list[Any], indices: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.check_csc(torch.tensor(indptr), torch.tensor(indices))


def test_an_empty_indptr_is_named() -> None:
    with pytest.raises(ValueError, match="csc_indptr must start with 0, but is"):
        ops.check_csc(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64))


@pytest.mark.parametrize("part", [1, 2, 1 << 24])
def test_large_graphs_are_checked_in_parts(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "PART_EDGES", part)
    indptr, types = torch.tensor([0, 2, 2, 5]), [0, 2, 0, 0, 1]
    for place in range(5):
        with pytest.raises(ValueError, match=r"indices must lie in 0 .. 2, but holds 3"):
            ops.check_csc(indptr, torch.tensor([0] * place + [3] + [0] * (4 - place)))
        with pytest.raises(ValueError, match=r"type_per_edge must lie in 0 .. 2, but holds 3"):
            ops.check_edge_types(indptr, torch.tensor([*types[:place], 3, *types[place + 1 :]]), 3)
    with pytest.raises(ValueError, match="ascend inside each column, but falls at 2"):
        ops.check_edge_types(indptr, torch.tensor([0, 2, 0, 1, 0]), 3)


def test_an_indptr_that_falls_is_named_without_edges_too() -> None:
    with pytest.raises(ValueError, match="csc_indptr must not fall"):
        ops.check_csc(torch.tensor([0, 5, 0]), torch.tensor([], dtype=torch.int64))


@pytest.mark.parametrize("indptr_dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("dtype", TYPE_DTYPES, ids=str)
def test_edge_types_must_ascend_in_each_column(indptr_dtype: torch.dtype, dtype: torch.dtype) -> None:
    indptr = torch.tensor([0, 2, 2, 5], dtype=indptr_dtype)
    ops.check_edge_types(indptr, torch.tensor([0, 2, 0, 0, 1], dtype=dtype), 3)
    ops.check_edge_types(strided(indptr), strided(torch.tensor([0, 2, 0, 0, 1], dtype=dtype)), 3)
    ops.check_edge_types(torch.tensor([0], dtype=indptr_dtype), torch.tensor([], dtype=dtype), 3)
    with pytest.raises(ValueError, match="type_per_edge must ascend inside each column, but falls at 2"):
        ops.check_edge_types(indptr, torch.tensor([0, 2, 1, 0, 1], dtype=dtype), 3)


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ([0, 3, 1], ValueError, "type_per_edge must lie in 0 .. 2, but holds 3"),
        ([-1, 0, 1], ValueError, "type_per_edge must lie in 0 .. 2, but holds -1"),
        ([0.0, 1.0, 1.0], TypeError, "type_per_edge must be torch.uint8 .* or torch.int64, but is torch.float32"),
        ([[0, 1, 1]], ValueError, r"type_per_edge must have 1 dimension, but has shape \(1, 3\)"),
    ],
)
def test_wrong_edge_types_are_named(types: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.check_edge_types(INDPTR, torch.tensor(types), 3)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("indptr_dtype", ID_DTYPES, ids=str)
@given(st.lists(DEGREES, max_size=10), st.data())
def test_expand_indptr_equals_the_reference(
    dtype: torch.dtype, indptr_dtype: torch.dtype, degrees: list[int], data: st.DataObject
) -> None:
    starts = reference.running_sum(degrees)
    ids = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=len(degrees), max_size=len(degrees)))
    indptr, node_ids = torch.tensor(starts, dtype=indptr_dtype), torch.tensor(ids, dtype=dtype)
    for size in (None, starts[-1]):
        result = ops.expand_indptr(indptr, node_ids=node_ids, output_size=size)
        assert result.dtype == dtype
        assert result.tolist() == reference.expand_indptr(starts, ids)
        result = ops.expand_indptr(indptr, dtype=dtype, output_size=size)
        assert result.dtype == dtype
        assert result.tolist() == reference.expand_indptr(starts, range(len(degrees)))


def test_expand_indptr_may_change_the_dtype_of_the_ids() -> None:
    ids = torch.tensor([5, 6, 7], dtype=torch.int32)
    result = ops.expand_indptr(INDPTR, dtype=torch.int64, node_ids=ids)
    assert result.dtype == torch.int64
    assert result.tolist() == [5, 5, 7]
    assert ops.expand_indptr(strided(INDPTR), node_ids=strided(ids)).tolist() == [5, 5, 7]


def test_expand_indptr_needs_a_dtype() -> None:
    with pytest.raises(ValueError, match="expand_indptr needs dtype or node_ids"):
        ops.expand_indptr(INDPTR)
    with pytest.raises(TypeError, match=r"indptr must be .*, but is torch\.float32"):
        ops.expand_indptr(INDPTR.float(), dtype=torch.int64)


@pytest.mark.parametrize("size", [2, 4])
def test_expand_indptr_names_a_wrong_size(size: int) -> None:
    with pytest.raises(ValueError, match=f"output_size must be 3, .* but is {size}"):
        ops.expand_indptr(INDPTR, dtype=torch.int64, output_size=size)


def test_expand_indptr_names_a_wrong_number_of_ids() -> None:
    with pytest.raises(ValueError, match="node_ids must have 3 ids, one per column, but has 1"):
        ops.expand_indptr(INDPTR, node_ids=torch.tensor([4]))


@pytest.mark.parametrize("part", [1, 1 << 24])
def test_edges_must_join_the_types_that_they_say(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "PART_EDGES", part)
    indptr, indices, offsets = torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0]), torch.tensor([0, 2, 3])
    ends = torch.tensor([[0, 0], [0, 1]])
    ops.check_joined(indptr, indices, torch.tensor([0, 1]), offsets, ends)
    for types, edge in (([1, 1], 0), ([0, 0], 1)):
        with pytest.raises(
            ValueError, match=f"type_per_edge says {types[edge]} of edge {edge}, but that type does not"
        ):
            ops.check_joined(indptr, indices, torch.tensor(types), offsets, ends)


def test_column_ids_are_written_where_they_are_wanted() -> None:
    out = torch.full((2, 3), -1)
    assert ops.expand_indptr(torch.tensor([0, 2, 2, 3]), torch.int64, out=out[1]).data_ptr() == out[1].data_ptr()
    assert out.tolist() == [[-1, -1, -1], [0, 0, 2]]
    for wrong in (out[0, :2], out[0].to(torch.int32), torch.zeros(3, 2, dtype=torch.int64)[:, 0]):
        with pytest.raises(ValueError, match=r"out must be 3 contiguous values of torch.int64, but is"):
            ops.expand_indptr(torch.tensor([0, 2, 2, 3]), torch.int64, out=wrong)
