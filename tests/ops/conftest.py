"""The fixture of the laws that hold on each device."""

import pytest

from tests.ops.compiled_kernels import COMPILER
from tests.ops.devices import Cpu, Device
from tests.ops.emulated_cuda import EmulatedCuda, RealCuda

DEVICES = [
    "cpu",
    pytest.param("emulated", marks=pytest.mark.compile),
    pytest.param("gpu", marks=[pytest.mark.compile, pytest.mark.gpu]),
]


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    """Return the CPU, a GPU, or what stands for a GPU."""
    if request.param == "cpu":
        return Cpu()
    if request.param == "gpu":
        return RealCuda()
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    return EmulatedCuda()
