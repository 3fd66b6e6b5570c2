"""Rows on a GPU: what it cannot take, what is read over the bus, and by how many threads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops import kernels
from graphfeed.ops.arguments import mark_below
from graphfeed.testing import limits
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, check_equal
from tests.unit.ops.test_gpu_work import operators


def test_what_a_gpu_cannot_take_is_named(cuda: Cuda) -> None:
    with cuda.running():
        rows, first, out_of_order = cuda.put(torch.zeros(3, 1)), cuda.put(torch.tensor([0])), torch.tensor([2, 1])
        check_refused([
            (lambda: ops.gather_rows(rows, cuda.put(torch.tensor([0, 3]))), IndexError, "index must be in 0 .. 2"),
            (lambda: ops.gather_rows(torch.zeros(3, 1), first), ValueError, "gather works on .*, but values .*pin_mem"),
            (lambda: ops.delete_rows(cuda.put(torch.zeros(4)), cuda.put(out_of_order)), ValueError, "places must asc"),
        ])  # fmt: skip


def test_bounds_that_a_gpu_knows_are_no_reason_to_trust_more(cuda: Cuda) -> None:
    with cuda.running():
        rows, falling = cuda.put(torch.zeros(4)), cuda.put(torch.tensor([2, 1]))
        indptr, sources, pairs = (cuda.put(torch.tensor(part)) for part in ([0, 1], [2, 3], [[3, 0]]))
        mark_below(falling, 3)  # as a sampler does
        mark_below(indptr, 2)
        check_refused([
            (lambda: ops.delete_rows(rows, falling), ValueError, "places must ascend"),
            (lambda: ops.match_pairs(indptr, sources, falling[:1], pairs), ValueError, "1 columns and ends with 1"),
        ])  # fmt: skip


def test_pinned_rows_with_gaps_are_named(cuda: Cuda) -> None:
    with cuda.running():
        rows, index = cuda.pin(torch.zeros(3, 128)), cuda.put(torch.tensor([0]))
        for values in (rows[:, :64], rows.T):
            with pytest.raises(ValueError, match=r"gather reads values in pinned .*; give values\.contig"):
                ops.gather_rows(values, index)
        check_equal(cuda, ops.gather_rows(rows[1:], index), torch.zeros(1, 128))


@pytest.mark.parametrize("sorted_bytes", [1, 1 << 40])
@pytest.mark.parametrize(("bits", "columns"), [(8, 100), (8, 3), (8, 70), (4, 200), (4, 9), (4, 1)])
def test_codes_are_decoded_as_on_the_cpu(cuda: Cuda, bits: int, columns: int, sorted_bytes: int) -> None:
    codes = torch.randint(0, 256, (50, (columns * bits + 7) // 8), dtype=torch.uint8)
    factors, index = (torch.randn(columns), torch.randn(columns)), torch.randint(0, 50, (120,))
    wanted = ops.decode_rows(codes, index, bits, *factors)
    with cuda.running(), limits(sorted_bytes=sorted_bytes):
        given = [cuda.put(factor) for factor in factors]
        for there in (cuda.put(codes), cuda.pin(codes)):
            for own in (cuda.put(index), cuda.put(index.int())):
                check_equal(cuda, ops.decode_rows(there, own, bits, *given), wanted)
            check_equal(cuda, ops.decode_rows(there, cuda.put(index[:0]), bits, *given), wanted[:0])
        scales = (torch.stack(factors, 1) if columns > 1 else torch.ones(1, 2))[:1].to(
            torch.half if bits == 4 else None
        )
        own = torch.cat([codes, scales.view(torch.uint8).expand(50, -1)], 1)
        wanted = ops.decode_own_scales(own, index, bits, columns)
        for there in (cuda.put(own), cuda.pin(own)):
            check_equal(cuda, ops.decode_own_scales(there, cuda.put(index), bits, columns), wanted)


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
    with cuda.running(), limits(sorted_bytes=1):
        rows, here, out = cuda.pin(values), cuda.put(index), cuda.put(torch.zeros(len(ids), 3))
        with operators() as names:
            check_equal(cuda, ops.gather_rows(rows, here), values[index])
        assert ("sort.default" in names) == (len(ids) > 0)
        module = kernels("rows.gather", here)
        module._gather(rows, here, 12, out, cuda.put(torch.tensor([count])), cuda.put(targets))
        check_equal(cuda, out, expected)


def test_pinned_rows_are_read_by_few_threads() -> None:
    cuda = EmulatedCuda()
    values = cuda.pin(torch.arange(30_000.0).reshape(100, 300))
    index = torch.randint(0, 100, (500,))
    with limits(), cuda.running():
        check_equal(cuda, ops.gather_rows(values, cuda.put(index)), values[index])
        assert cuda.launches[-1] == ("copy_rows", 10_240)
        ops.set_max_uva_threads(512)
        check_equal(cuda, ops.gather_rows(values, cuda.put(index)), values[index])
        assert cuda.launches[-1] == ("copy_rows", 512)
        ops.gather_rows(cuda.put(values), cuda.put(index))
        assert cuda.launches[-1] == ("copy_rows", 16_128)


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
