"""Rows are gathered, copied, deleted and cached on a GPU as on the CPU."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops import kernels
from graphfeed.ops.memory import pinned
from graphfeed.ops.rows import CacheSets, find_in_sets, new_sets, replace_in_sets
from tests.cache_models import distinct
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, check_equal
from tests.ops.graphs import ID_DTYPES
from tests.refusals import check_refused
from tests.test_gpu_work import operators

PLACES = st.sets(st.integers(0, 8)).map(lambda places: torch.tensor(sorted(places), dtype=torch.int64))


@given(
    st.sampled_from([torch.bool, torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex128]),
    st.sampled_from([(), (1,), (2,), (3,), (5,), (4, 4), (100,), (129,), (0,)]),
    st.lists(st.integers(0, 6), max_size=9),
    st.sampled_from(ID_DTYPES),
)
def test_gathered_rows_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, shape: tuple[int, ...], places: list[int], ids: torch.dtype
) -> None:
    values = torch.randint(0, 2**31, (7, *shape)).to(dtype)
    index = torch.tensor(places, dtype=ids)
    expected = ops.gather_rows(values, index)
    with cuda.running():
        check_equal(cuda, ops.gather_rows(cuda.put(values), cuda.put(index)), expected)


def test_rows_may_start_at_any_byte(cuda: Cuda) -> None:
    values = torch.arange(200, dtype=torch.uint8)
    index = torch.tensor([3, 0, 2])
    with cuda.running():
        for first in range(0, 17, 3):
            part = cuda.put(values)[first : first + 160].reshape(5, 32)
            check_equal(cuda, ops.gather_rows(part, cuda.put(index)), values[first : first + 160].reshape(5, 32)[index])


def test_what_a_gpu_cannot_take_is_named(cuda: Cuda) -> None:
    with cuda.running():
        rows, first, out_of_order = cuda.put(torch.zeros(3, 1)), cuda.put(torch.tensor([0])), torch.tensor([2, 1])
        check_refused([
            (lambda: ops.gather_rows(rows, cuda.put(torch.tensor([0, 3]))), IndexError, "index must lie in 0 .. 2"),
            (lambda: ops.gather_rows(torch.zeros(3, 1), first), ValueError, "gather works on .*, but values .*pin_mem"),
            (lambda: ops.delete_rows(cuda.put(torch.zeros(4)), cuda.put(out_of_order)), ValueError, "places must asc"),
        ])  # fmt: skip


def test_pinned_rows_with_gaps_are_named(cuda: Cuda) -> None:
    with cuda.running():
        rows, index = cuda.pin(torch.zeros(3, 128)), cuda.put(torch.tensor([0]))
        for values in (rows[:, :64], rows.T, torch.view_as_complex(rows.reshape(3, 64, 2)).conj()):
            with pytest.raises(ValueError, match=r"gather reads values in pinned .*; give values\.contig"):
                ops.gather_rows(values, index)
        check_equal(cuda, ops.gather_rows(rows[1:], index), torch.zeros(1, 128))


@pytest.mark.parametrize("halves", [(0, 1), (1, 0)])
def test_features_of_one_storage_are_pinned_each_or_together(cuda: Cuda, halves: tuple[int, int]) -> None:
    rows = torch.arange(40_000.0).reshape(-1, 4)
    with cuda.running():
        index = cuda.put(torch.tensor([4_999, 0]))
        first, second = (gf.TorchBasedFeature(rows[5_000 * half :][:5_000]) for half in halves)
        first.pin_memory_()
        assert first.is_pinned()
        assert cuda.is_there(second.read(index)) == second.is_pinned()
        second.pin_memory_()
        for half, feature in zip(halves, (first, second), strict=True):
            check_equal(cuda, feature.read(index), rows[5_000 * half :][[4_999, 0]])
        del first, second, feature


@pytest.mark.gpu
def test_pinned_rows_are_read_over_the_bus() -> None:
    values = torch.arange(30_000.0).reshape(100, 300)
    index = torch.randint(0, 100, (500,))
    feature = gf.TorchBasedFeature(values.clone())
    feature.pin_memory_()
    assert feature.is_pinned()
    for rows in (ops.gather_rows(values.pin_memory(), index.to("cuda")), feature.read(index.to("cuda"))):
        assert rows.is_cuda
        assert torch.equal(rows.cpu(), values[index])


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 60), st.booleans())
def test_large_pinned_rows_are_read_in_the_order_of_their_memory(ids: list[int], count: int, leave_out: bool) -> None:
    cuda, index, count = EmulatedCuda(), torch.tensor(ids, dtype=torch.int64), min(count, len(ids))
    values = torch.arange(41 * 3.0).reshape(41, 3)
    targets = torch.randperm(len(ids))
    targets[::2] = -1 if leave_out else targets[::2]
    expected = torch.zeros(len(ids), 3)
    expected[targets[:count][targets[:count] >= 0]] = values[index[:count]][targets[:count] >= 0]
    with cuda.running(), patch.object(kernels("rows.gather", cuda.put(index)), "SORTED_BYTES", 1):
        rows, here, out = cuda.pin(values), cuda.put(index), cuda.put(torch.zeros(len(ids), 3))
        with operators() as names:
            check_equal(cuda, ops.gather_rows(rows, here), values[index])
        assert ("sort.default" in names) == (len(ids) > 0)
        module = kernels("rows.gather", here)
        module._gather(rows, here, 12, out, cuda.put(torch.tensor([count])), cuda.put(targets))
        check_equal(cuda, out, expected)


def test_pinned_rows_are_read_by_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = EmulatedCuda()
    values = cuda.pin(torch.arange(30_000.0).reshape(100, 300))
    index = torch.randint(0, 100, (500,))
    monkeypatch.setattr(pinned, "LIMIT", pinned.Limit())
    with cuda.running():
        check_equal(cuda, ops.gather_rows(values, cuda.put(index)), values[index])
        assert cuda.launches[-1] == ("copy_rows", 10_240)
        pinned.set_max_uva_threads(512)
        check_equal(cuda, ops.gather_rows(values, cuda.put(index)), values[index])
        assert cuda.launches[-1] == ("copy_rows", 512)
        ops.gather_rows(cuda.put(values), cuda.put(index))
        assert cuda.launches[-1] == ("copy_rows", 16_128)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), max_size=12),
    st.sampled_from([(1,), (3,), (40,)]),
    st.sampled_from([torch.uint8, torch.float32, torch.int64]),
)
def test_the_last_of_equal_targets_stays(
    cuda: Cuda, pairs: list[tuple[int, int]], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    source = torch.randint(0, 100, (7, *shape)).to(dtype)
    from_rows = torch.tensor([row for row, _ in pairs], dtype=torch.int64)
    to_rows = torch.tensor([row for _, row in pairs], dtype=torch.int64)
    expected = torch.zeros(5, *shape, dtype=dtype)
    ops.copy_rows(source, from_rows, expected, to_rows)
    for order in cuda.each_order():
        with order, cuda.running():
            out = cuda.put(torch.zeros(5, *shape, dtype=dtype))
            ops.copy_rows(cuda.put(source), cuda.put(from_rows), out, cuda.put(to_rows))
            check_equal(cuda, out, expected)


def test_distinct_targets_need_no_scratch(cuda: Cuda) -> None:
    source, from_rows, to_rows = torch.rand(5, 3), torch.tensor([4, 0, 4, 1]), torch.tensor([2, -1, 0, 3])
    expected = torch.zeros(4, 3)
    ops.copy_rows(source, from_rows, expected, to_rows, distinct=True)
    assert torch.equal(expected[[2, 0, 3]], source[[4, 4, 1]])
    for order in cuda.each_order():
        with order, cuda.running():
            out = cuda.put(torch.zeros(4, 3))
            ops.copy_rows(cuda.put(source), cuda.put(from_rows), out, cuda.put(to_rows), distinct=True)
            check_equal(cuda, out, expected)
            if isinstance(cuda, EmulatedCuda):
                assert [name for name, _ in cuda.launches] == ["copy_rows"]


@given(PLACES, st.sampled_from([(), (3,), (40,)]), st.sampled_from([torch.uint8, torch.float32, torch.int64]))
def test_rows_that_stay_are_those_of_the_cpu(
    cuda: Cuda, places: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = torch.randint(0, 100, (9, *shape)).to(dtype)
    expected = ops.delete_rows(values, places)
    with cuda.running():
        check_equal(cuda, ops.delete_rows(cuda.put(values), cuda.put(places)), expected)


@given(PLACES, st.sampled_from(ID_DTYPES))
def test_columns_that_stay_are_those_of_the_cpu(cuda: Cuda, places: torch.Tensor, dtype: torch.dtype) -> None:
    indptr = torch.tensor([0, 0, 4, 5, 5, 9, 9], dtype=dtype)
    expected = ops.delete_from_columns(indptr, places)
    with cuda.running():
        check_equal(cuda, ops.delete_from_columns(cuda.put(indptr), cuda.put(places)), expected)


@given(
    st.sampled_from([1, 20, 32, 65]),
    st.lists(st.lists(st.integers(0, 150), max_size=50), max_size=5),
)
def test_cached_keys_lie_where_they_lie_on_the_cpu(cuda: Cuda, capacity: int, batches: list[list[int]]) -> None:
    for order in cuda.each_order():
        expected = new_sets(capacity)
        with order, cuda.running():
            sets = CacheSets(cuda.put(expected.keys), cuda.put(expected.uses))
            for request, batch in enumerate(batches):
                keys = torch.tensor(batch, dtype=torch.int64)
                slots = find_in_sets(expected, keys, request)
                check_equal(cuda, find_in_sets(sets, cuda.put(keys), request), slots)
                wanted = torch.tensor(distinct(keys[slots < 0].tolist()), dtype=torch.int64)
                check_equal(
                    cuda, replace_in_sets(sets, cuda.put(wanted), request), replace_in_sets(expected, wanted, request)
                )
            check_equal(cuda, sets.keys, expected.keys)
            check_equal(cuda, sets.uses, expected.uses)
