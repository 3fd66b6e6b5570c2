"""Compressed sparse columns are made, expanded and numbered as the reference does it, on each device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.graphs import DEGREES, ID_DTYPES, TYPE_DTYPES
from tests.stand_ins.devices import Cpu, Device, Put, results

INDPTR = torch.tensor([0, 2, 2, 3])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.sampled_from(ID_DTYPES), st.integers(0, 12), st.data())
def test_coo_to_csc_equals_the_reference(
    device: Device, dtype: torch.dtype, source_dtype: torch.dtype, num_nodes: int, data: st.DataObject
) -> None:
    ids = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(ids, ids), max_size=60)) if num_nodes else []
    sources, destinations = [edge[0] for edge in edges], [edge[1] for edge in edges]
    starts, ends = torch.tensor(sources, dtype=source_dtype), torch.tensor(destinations, dtype=dtype)
    for found in results(device, lambda put: ops.coo_to_csc(put(starts), put(ends), num_nodes)):
        assert found.indptr.dtype == found.order.dtype == torch.int64
        assert found.indices.dtype == source_dtype
        assert tuple(part.tolist() for part in found) == reference.coo_to_csc(sources, destinations, num_nodes)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.sampled_from(ID_DTYPES), st.lists(DEGREES, max_size=10), st.data())
def test_expand_indptr_equals_the_reference(
    device: Device, dtype: torch.dtype, indptr_dtype: torch.dtype, degrees: list[int], data: st.DataObject
) -> None:
    starts = reference.running_sum(degrees)
    ids = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=len(degrees), max_size=len(degrees)))
    indptr, node_ids = torch.tensor(starts, dtype=indptr_dtype), torch.tensor(ids, dtype=dtype)
    expected = [reference.expand_indptr(starts, ids), reference.expand_indptr(starts, range(len(degrees)))]
    size = data.draw(st.sampled_from([None, starts[-1]]))

    def expand(put: Put) -> list[torch.Tensor]:
        named = ops.expand_indptr(put(indptr), node_ids=put(node_ids), output_size=size)
        return [named, ops.expand_indptr(put(indptr), dtype=dtype, output_size=size)]

    for found in results(device, expand):
        assert {part.dtype for part in found} == {dtype}
        assert [part.tolist() for part in found] == expected


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(degrees=st.lists(DEGREES, max_size=10), first=st.integers(0, 99), sized=st.booleans())
def test_indptr_edge_ids_equals_the_reference(
    device: Device, dtype: torch.dtype, degrees: list[int], first: int, sized: bool
) -> None:
    indptr, offset = reference.running_sum(degrees), [first * place for place in range(len(degrees))]
    starts, offsets = torch.tensor(indptr, dtype=dtype), torch.tensor(offset, dtype=dtype)
    size = indptr[-1] if sized else None
    expected = [reference.indptr_edge_ids(indptr, own) for own in (offset, [0] * len(degrees))]

    def number(put: Put) -> list[torch.Tensor]:
        own = ops.indptr_edge_ids(put(starts), offset=put(offsets), output_size=size)
        return [own, ops.indptr_edge_ids(put(starts), output_size=size)]

    for found in results(device, number):
        assert {part.dtype for part in found} == {dtype}
        assert [part.tolist() for part in found] == expected


def test_ids_get_the_dtype_that_is_asked_for() -> None:
    ids, narrow = torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    found = ops.expand_indptr(INDPTR, dtype=torch.int64, node_ids=ids)
    assert (found.dtype, found.tolist()) == (torch.int64, [5, 5, 7])
    assert ops.indptr_edge_ids(narrow, dtype=torch.int64).dtype == torch.int64
    assert ops.indptr_edge_ids(narrow, offset=torch.tensor([2**40])).tolist() == [2**40, 2**40 + 1]


def test_column_ids_are_written_where_they_are_wanted() -> None:
    out = torch.full((2, 3), -1)
    assert ops.expand_indptr(INDPTR, torch.int64, out=out[1]).data_ptr() == out[1].data_ptr()
    assert out.tolist() == [[-1, -1, -1], [0, 0, 2]]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_graphs_pass_the_check(device: Device, dtype: torch.dtype) -> None:
    none, indices = torch.tensor([], dtype=dtype), torch.tensor([2, 0, 1], dtype=dtype)
    for starts in ID_DTYPES:
        for indptr, own in ((INDPTR, indices), (torch.tensor([0]), none), (torch.tensor([0, 0, 0]), none)):
            with device.running():
                ops.check_csc(device.put(indptr.to(starts)), device.put(own))


@pytest.mark.parametrize("dtype", TYPE_DTYPES, ids=str)
def test_edge_types_must_ascend_in_each_column_and_join_the_types_of_its_ends(
    device: Device, dtype: torch.dtype
) -> None:
    ends, offsets = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]]), torch.tensor([0, 1, 3])

    def check(indptr: torch.Tensor, types: list[int], hold: Put) -> None:
        starts, kinds = hold(indptr), device.put(torch.tensor(types, dtype=dtype))
        ops.check_edge_types(starts, kinds, 4)
        ops.check_joined(starts, hold(torch.tensor([0, 1, 2, 0])), kinds, offsets, ends)

    for starts in ID_DTYPES:
        indptr = torch.tensor([0, 2, 2, 4], dtype=starts)
        # In pinned memory, too: the check of types once wrote its result there.
        for hold in [device.put] if isinstance(device, Cpu) else [device.put, device.pin]:
            with device.running():
                check(indptr, [0, 1, 2, 3], hold)
                with pytest.raises(ValueError, match="type_per_edge must ascend inside each column, but falls at 2"):
                    check(indptr, [0, 1, 3, 2], hold)
                with pytest.raises(ValueError, match="type_per_edge is 3 for edge 2, but that type does not"):
                    check(indptr, [0, 1, 3, 3], hold)


@limits(checked_edges=2)
def test_large_graphs_are_checked_in_parts() -> None:
    indptr, types = torch.tensor([0, 2, 2, 5]), [0, 2, 0, 0, 1]
    for place in range(5):
        with pytest.raises(ValueError, match=r"indices must be in 0 .. 2, but holds 3"):
            ops.check_csc(indptr, torch.tensor([0] * place + [3] + [0] * (4 - place)))
        with pytest.raises(ValueError, match=r"type_per_edge must be in 0 .. 2, but holds 3"):
            ops.check_edge_types(indptr, torch.tensor([*types[:place], 3, *types[place + 1 :]]), 3)
    with pytest.raises(ValueError, match="ascend inside each column, but falls at 2"):
        ops.check_edge_types(indptr, torch.tensor([0, 2, 0, 1, 0]), 3)
    given = torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0]), torch.tensor([0, 2, 3]), torch.tensor([[0, 0], [0, 1]])
    indptr, indices, offsets, ends = given
    ops.check_joined(indptr, indices, torch.tensor([0, 1]), offsets, ends)
    for wrong, edge in (([1, 1], 0), ([0, 0], 1)):
        with pytest.raises(ValueError, match=f"type_per_edge is {wrong[edge]} for edge {edge}, but that type"):
            ops.check_joined(indptr, indices, torch.tensor(wrong), offsets, ends)
