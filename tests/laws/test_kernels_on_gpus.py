"""Results of a GPU on a large graph, from its own memory and over the bus, are bit-identical to those of the CPU."""

from functools import cache

import pytest
import torch

from tests.kinds.compare_kernels import compare_kernels
from tests.kinds.gpu_calls import Inputs, calls, make_inputs

NUM_NODES, HUB = 20_000, 200_000


@cache
def inputs() -> Inputs:
    return make_inputs(NUM_NODES, HUB)


@pytest.mark.gpu
@pytest.mark.parametrize("name", calls(make_inputs(12, 300)))
def test_an_operation_on_a_gpu_gives_the_bits_of_the_cpu(name: str) -> None:
    call = calls(inputs())[name]
    found = list(compare_kernels(torch.device("cuda"), inputs(), lambda _: {name: call}))
    assert [comparison for comparison in found if not comparison.same] == []
