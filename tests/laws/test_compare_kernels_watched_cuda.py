"""Every load and store of every kernel: inside its arguments, of what somebody wrote, and ordered between threads."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from graphfeed import ops
from tests.kinds.compare_kernels import compare_kernels
from tests.kinds.gpu_calls import Call, calls, make_inputs
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, EmulatedModule, device_of
from tests.stand_ins.strict_cupy import note
from tests.unit.ops.test_backend_cuda import MOST_REGISTERS

CODE = """
typedef long long i64;
typedef unsigned long long u64;
extern "C" __global__ void beyond(const i64 *from, i64 size, i64 *to) { to[threadIdx.x] = from[threadIdx.x + size]; }
extern "C" __global__ void before(const i64 *from, i64 size, i64 *to) { to[(i64)threadIdx.x - size] = from[0]; }
extern "C" __global__ void into_const(const i64 *from, i64 size, i64 *to) { ((i64 *)from)[threadIdx.x] = to[0] = size; }
extern "C" __global__ void unwritten(const i64 *from, i64 size, i64 *to) { to[threadIdx.x] += from[0] + size; }
extern "C" __global__ void between_lanes(const i64 *from, i64 size, i64 *to) {
    to[threadIdx.x] = from[threadIdx.x];
    if (size) __syncwarp();
    i64 next = to[threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32];
    __syncwarp();
    to[threadIdx.x] = next;
}
extern "C" __global__ void voted(const i64 *from, i64 size, i64 *to) {
    to[threadIdx.x] = from[threadIdx.x];
    if (size) __syncwarp();
    __ballot_sync(0xFFFFFFFFu, size);
    i64 next = to[threadIdx.x / 32 * 32 + __shfl_sync(0xFFFFFFFFu, (threadIdx.x + 1) % 32, threadIdx.x % 32)];
    __syncwarp();
    to[threadIdx.x] = next;
}
extern "C" __global__ void not_cleared(const i64 *from, i64 size, i64 *to) {
    __shared__ i64 count;
    if (threadIdx.x == 0 && (size || blockIdx.x == 0)) count = from[0];
    __syncthreads();
    to[threadIdx.x] = count;
}
extern "C" __global__ void between_warps(const i64 *from, i64 size, i64 *to) {
    __shared__ i64 all[64];
    all[threadIdx.x] = from[threadIdx.x];
    if (size) __syncthreads();
    else __syncwarp();
    to[threadIdx.x] = all[63 - threadIdx.x];
}
extern "C" __global__ void same_value(const i64 *from, i64 size, i64 *to) { to[0] = from[size * threadIdx.x]; }
extern "C" __global__ void counted(const i64 *from, i64 size, i64 *to) {
    if (size) atomicMax(&to[0], from[threadIdx.x]);
    else to[0] = to[0] > from[threadIdx.x] ? to[0] : from[threadIdx.x];
}
extern "C" __global__ void misaligned(const i64 *from, i64 size, i64 *to) {
    to[threadIdx.x] = *(const i64 *)((const char *)from + 4 * size);
}
extern "C" __global__ void exchanged(const i64 *from, i64 size, i64 *to) {
    if (threadIdx.x % 2 == size) to[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, from[0], 0);
    else to[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, from[1], 1);
}
extern "C" __global__ void met(const i64 *from, i64 size, i64 *to) {
    if (threadIdx.x / 32 == size) __syncthreads();
    else __syncthreads(), to[threadIdx.x] = from[0];
}
"""
THREADS = 64
FAULTY = [
    ("beyond", 1, r"thread 63 reads outside: 8 bytes"),
    ("before", 1, r"thread 0 writes outside: 8 bytes"),
    ("into_const", 1, r"writes through const: 8 bytes at 0 of tensor 0"),
    ("unwritten", 1, r"reads unwritten memory: 8 bytes at 0 of tensor 1"),
    ("between_lanes", 0, r"thread \d+ (reads|writes) what another one (writes|reads), with nothing between them"),
    ("between_warps", 0, r"thread \d+ (reads|writes) what another one (writes|reads), with nothing between them"),
    ("voted", 0, r"thread \d+ (reads|writes) what another one (writes|reads), with nothing between them"),
    ("not_cleared", 0, r"thread \d+ reads unwritten memory, shared by its block"),
    ("same_value", 1, r"thread 1 writes what another one writes, with nothing between them: 8 bytes at 0 of tensor 1"),
    ("counted", 0, r"thread 1 (reads|writes) what another one (writes|reads), with nothing between them"),
    ("misaligned", 1, r"touches memory between two values: 8 bytes at 4 of tensor 0"),
    ("exchanged", 0, r"the lanes of a warp came to different exchanges"),
    ("met", 0, r"the threads of a block came to different meetings"),
]
"""Kernels, what they take as their size, and what is said about them."""
SOUND = [("beyond", 0), ("before", 0), ("between_lanes", 1), ("voted", 1), ("not_cleared", 1), ("between_warps", 1),
         ("same_value", 0), ("counted", 1), ("misaligned", 0), ("exchanged", 2)]  # fmt: skip


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> EmulatedCuda:
    monkeypatch.setattr(EmulatedCuda, "watched", True)
    return EmulatedCuda()


def run(name: str, size: int, cuda: EmulatedCuda) -> None:
    """Start a kernel of the code above with 64 threads, values to read, and unwritten memory."""
    from_, to = cuda.put(torch.arange(THREADS)), torch.empty(THREADS, dtype=torch.int64, device="meta")
    if name in ("between_lanes", "voted", "counted"):
        to.zero_()
    function = EmulatedModule(CODE).get_function(name)
    note(from_)
    note(to)
    blocks = 2 if name == "not_cleared" else 1
    function(blocks, THREADS, 0, [from_.data_ptr(), size, to.data_ptr()])


def test_what_a_kernel_must_not_do_is_seen(watched: EmulatedCuda) -> None:
    for name, size, message in FAULTY:
        with watched.running(), pytest.raises(AssertionError, match=message):
            run(name, size, watched)


def test_what_a_kernel_may_do_is_not_refused(watched: EmulatedCuda) -> None:
    for name, size in SOUND:
        for order in watched.each_order():
            with order, watched.running():
                run(name, size, watched)


def test_an_operation_of_torch_reads_only_what_somebody_wrote(watched: EmulatedCuda) -> None:
    with watched.running():
        made = torch.empty(4, dtype=torch.int64, device="meta")
        for read in (lambda: made + 1, made.tolist):
            with pytest.raises(AssertionError, match="reads unwritten memory"):
                read()
        made[1:].fill_(7)
        assert made[1:].tolist() == [7] * 3
        with pytest.raises(AssertionError, match="reads unwritten memory"):
            made.clone()


def compare(watched: EmulatedCuda, order: AbstractContextManager[object], nodes: int, hub: int) -> None:
    """Run every kernel, and raise unless it did nothing that it must not do, and gave the bits of the CPU."""
    usual = ops.max_uva_threads()
    with order, watched.running():
        ops.set_max_uva_threads(1)  # so that kernels that read over the bus continue with further columns
        found = list(compare_kernels(torch.device("meta"), make_inputs(nodes, hub)))
        ops.set_max_uva_threads(usual)
        assert [comparison for comparison in found if not comparison.same] == []
        assert {name for name, _ in watched.launches} == MOST_REGISTERS.keys()


def test_kernels_touch_only_what_they_may(watched: EmulatedCuda) -> None:
    compare(watched, next(watched.each_order()), 12, 40)


@pytest.mark.slow
@pytest.mark.thorough
def test_so_they_do_in_each_order_in_whole_blocks_and_on_a_larger_graph(
    watched: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    for order, size, threads in list(zip(watched.each_order(), (0, 150, 300), (0, 64, 256), strict=True))[1:]:
        monkeypatch.setattr(EmulatedCuda, "flags", (f"-DMOST_THREADS={threads}",))
        compare(watched, order, 12, size)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_kernel_runs_and_computes_what_the_cpu_does(cuda: Cuda) -> None:
    inputs = make_inputs(12, 300)
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), inputs))
        assert [comparison for comparison in found if not comparison.same] == []
        assert {comparison.case for comparison in found} >= calls(inputs).keys()
        if isinstance(cuda, EmulatedCuda):
            assert {name for name, _ in cuda.launches} == MOST_REGISTERS.keys()


def test_what_differs_and_what_raises_is_told(cuda: Cuda) -> None:
    def writes(seeds: torch.Tensor) -> None:
        seeds += seeds.is_cpu

    def raises(seeds: torch.Tensor) -> Any:
        assert seeds.is_cpu, "an illegal address"

    def is_shorter(seeds: torch.Tensor) -> Any:
        return seeds if seeds.is_cpu else seeds[1:]

    given = {"seeds": torch.arange(6)}
    wrong = {
        "first": Call(lambda seeds: [seeds, (seeds * seeds.is_cpu, None)], given, over_the_bus=("seeds",)),
        "second": Call(raises, given),
        "third": Call(is_shorter, given),
        "fourth": Call(writes, given, [{}, {"seeds": torch.arange(3)}]),
    }  # fmt: skip
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), make_inputs(4, 20), lambda _: wrong))
    assert [(case, same) for case, same, _ in found] == [
        ("first", False), ("first, from page-locked memory", True), ("second", False), ("third", False),
        ("fourth", False),
    ]  # fmt: skip
    assert found[0].said == "5 of 18 values differ from the CPU's"
    assert found[2].said.startswith("AssertionError: an illegal address")
    assert "are [(torch.int64, (6,)), (torch.int64, (6,))], but the GPU's are [(torch.int64, (5,))" in found[3].said
    assert found[-1].said == "6 of 6 values differ from the CPU's"
