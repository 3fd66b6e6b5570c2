from typing import Any

import pytest
import torch

from graphfeed.ops import compare_kernels as module
from graphfeed.ops.compare_kernels import CASES, Place, compare_kernels, make_inputs
from graphfeed.ops.cuda.source import device_code
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of
from tests.ops.strict_cupy import SIGNATURE


@pytest.mark.slow
def test_every_kernel_runs_and_computes_what_the_cpu_does(cuda: Cuda) -> None:
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), make_inputs(12, 300)))
        assert [comparison for comparison in found if not comparison.same] == []
        assert {comparison.case for comparison in found} >= CASES.keys()
        if isinstance(cuda, EmulatedCuda):
            assert {name for name, _ in cuda.launches} == {name for name, _ in SIGNATURE.findall(device_code())}


def test_what_differs_and_what_raises_is_told(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(place: Place, inputs: Any) -> Any:
        seeds = place.put(inputs.seeds)
        return [seeds, (seeds + seeds.is_cpu, None)]

    def raises(place: Place, inputs: Any) -> Any:
        assert place.put(inputs.seeds).is_cpu, "an illegal address"
        return inputs.seeds

    def is_shorter(place: Place, inputs: Any) -> Any:
        return inputs.seeds if place.put(inputs.seeds).is_cpu else place.put(inputs.seeds[1:])

    monkeypatch.setattr(module, "CASES", {"first": differs, "second": raises, "third": is_shorter})
    monkeypatch.setattr(module, "READ_BY_UVA", (differs,))
    with cuda.running():
        found = list(compare_kernels(torch.device(device_of(cuda)), make_inputs(4, 20)))
    assert [(case, same) for case, same, _ in found] == [
        ("first", False), ("first, from page-locked memory", False), ("second", False), ("third", False),
    ]  # fmt: skip
    assert found[0].said == "6 of 12 values differ from the CPU's"
    assert found[2].said.startswith("AssertionError: an illegal address")
    assert "are [(torch.int64, (6,))], but the GPU's are [(torch.int64, (5,))]" in found[3].said
