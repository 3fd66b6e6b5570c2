"""Rows on a GPU: what it cannot take, what is read over the bus, and by how many threads."""

from typing import Any

import numpy as np
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


NUMBERS = [
    0.0,
    -0.0,
    1e-45,
    -3e-45,
    1e-39,
    -1e-38,
    1.1754944e-38,
    3e-37,
    -1.0,
    0.1,
    255.0,
    65504.0,
    -1e30,
    3e38,
    3.4e38,
]


def numbers_of(*shape: int) -> torch.Tensor:
    """Return numbers from the smallest to the largest, in random order."""
    return torch.tensor(NUMBERS)[torch.randint(0, len(NUMBERS), shape)]


def coded_rows(bits: int, columns: int, kind: str) -> dict[str, Any]:
    """Return the arguments of `decode_rows` for 50 rows, of which few numbers are infinite or NaN."""
    if bits == 16:
        codes = torch.randint(0, 1 << 16, (50, columns), dtype=torch.int32).to(torch.uint16).view(getattr(torch, kind))
        return {"codes": codes, "bits": 16, "columns": columns}
    codes = torch.randint(0, 256, (50, (columns * bits + 7) // 8), dtype=torch.uint8)
    if kind == "column":
        factors = {"scale": numbers_of(columns) / 300, "offset": numbers_of(columns) / 2}
        return {"codes": codes, "bits": bits, "columns": columns, **factors}
    own = torch.stack([numbers_of(50) / 300, numbers_of(50) / 2], 1)
    own = own.view(torch.uint8) if bits == 8 else own.clamp(-6e4, 6e4).half().view(torch.uint8)
    return {"codes": torch.cat([codes, own], 1), "bits": bits, "columns": columns}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 2, 7, 9, 31, 32, 33, 100, 300])
@pytest.mark.parametrize(
    ("bits", "kind"), [(8, "column"), (4, "column"), (8, "row"), (4, "row"), (16, "float16"), (16, "bfloat16")]
)
def test_codes_are_decoded_as_on_the_cpu(cuda: Cuda, bits: int, kind: str, columns: int, dtype: torch.dtype) -> None:
    given, index = coded_rows(bits, columns, kind), torch.randint(0, 50, (75,))
    codes, same_bits = given.pop("codes"), torch.int32 if dtype == torch.float32 else torch.int16
    if dtype == torch.bfloat16 and bits == 16:  # processors have different NaN
        codes = codes.where(~codes.isnan(), 0.5)

    def wanted_of(index: torch.Tensor) -> torch.Tensor:
        return ops.decode_rows(codes, index, **given, dtype=dtype).view(same_bits)

    wanted = wanted_of(index)
    subnormal = wanted[wanted != 0].view(dtype).float().abs() < 2.0**-126
    assert columns < 100 or bits == 16 or kind == "row" or subnormal.any(), "which -ftz=true would count as 0"
    with cuda.running():
        there: dict[str, Any] = {
            name: cuda.put(own) if isinstance(own, torch.Tensor) else own for name, own in given.items()
        }

        def check(codes: torch.Tensor, index: torch.Tensor | None, wanted: torch.Tensor) -> None:
            check_equal(cuda, ops.decode_rows(codes, index, **there, dtype=dtype).view(same_bits), wanted)

        for order in cuda.each_order():
            with order:
                check(cuda.put(codes), cuda.put(index), wanted)
        check(cuda.put(codes), cuda.put(index[:0]), wanted[:0])
        check(cuda.put(codes)[1:], cuda.put((index - 1).clamp(0).int()), wanted_of(index.clamp(1)))
        with operators() as names:
            check(cuda.put(codes), None, wanted_of(torch.arange(50)))
        if isinstance(cuda, EmulatedCuda):
            assert cuda.launches[-1] == ("decode_rows", -(-(50 << (min(columns, 32) - 1).bit_length()) // 256) * 256)
            assert {*names} == {"_to_copy.default"}, "which copies the result for the comparison"
        for sorted_bytes in (1, 1 << 40):
            with limits(sorted_bytes=sorted_bytes):
                check(cuda.pin(codes), cuda.put(index), wanted)


def test_sizes_of_codes_are_integers_of_any_library(cuda: Cuda) -> None:
    codes = torch.cat([torch.tensor([[3, 4, 5]]).byte(), torch.tensor([0.5, 7.0]).view(torch.uint8)[None]], 1)
    wanted = torch.tensor([[8.5, 9.0, 9.5]])
    kinds: list[Any] = [int, np.int64, torch.tensor]
    for kind in kinds:
        assert ops.decode_rows(codes, None, kind(8), kind(3)).equal(wanted)
        with cuda.running():
            check_equal(cuda, ops.decode_rows(cuda.put(codes), None, kind(8), kind(3)), wanted)


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
