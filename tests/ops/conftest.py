"""The device that the tests of CUDA kernels run on."""

import pytest

from tests.ops.emulated_cuda import COMPILER, EmulatedCuda, RealCuda


@pytest.fixture(scope="module", params=["emulated", pytest.param("device", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> EmulatedCuda | RealCuda:
    """Return a GPU, or what stands for one."""
    if request.param == "device":
        return RealCuda()
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    return EmulatedCuda()
