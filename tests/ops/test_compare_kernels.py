from typing import Any

import pytest
import torch

from graphfeed.ops import compare_kernels as module
from graphfeed.ops.calls import Call, calls, make_inputs
from graphfeed.ops.compare_kernels import compare_kernels
from graphfeed.ops.cuda.source import device_code
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of
from tests.ops.strict_cupy import SIGNATURE


@pytest.mark.slow
def test_every_kernel_runs_and_computes_what_the_cpu_does(cuda: Cuda) -> None:
    inputs = make_inputs(12, 300)
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), inputs))
        assert [comparison for comparison in found if not comparison.same] == []
        assert {comparison.case for comparison in found} >= calls(inputs).keys()
        if isinstance(cuda, EmulatedCuda):
            assert {name for name, _ in cuda.launches} == {name for name, _ in SIGNATURE.findall(device_code())}


def test_what_differs_and_what_raises_is_told(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(seeds: torch.Tensor) -> None:
        seeds += seeds.is_cpu

    def raises(seeds: torch.Tensor) -> Any:
        assert seeds.is_cpu, "an illegal address"

    def is_shorter(seeds: torch.Tensor) -> Any:
        return seeds if seeds.is_cpu else seeds[1:]

    given = {"seeds": torch.arange(6)}
    monkeypatch.setattr(module, "calls", lambda inputs: {
        "first": Call(lambda seeds: [seeds, (seeds * seeds.is_cpu, None)], given, over_the_bus=("seeds",)),
        "second": Call(raises, given),
        "third": Call(is_shorter, given),
        "fourth": Call(writes, given, [{}, {"seeds": torch.arange(3)}]),
    })  # fmt: skip
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), make_inputs(4, 20)))
    assert [(case, same) for case, same, _ in found] == [
        ("first", False), ("first, from page-locked memory", True), ("second", False), ("third", False),
        ("fourth", False),
    ]  # fmt: skip
    assert found[0].said == "5 of 18 values differ from the CPU's"
    assert found[2].said.startswith("AssertionError: an illegal address")
    assert "are [(torch.int64, (6,)), (torch.int64, (6,))], but the GPU's are [(torch.int64, (5,))" in found[3].said
    assert found[-1].said == "6 of 6 values differ from the CPU's"
