from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import random
from graphfeed.ops.cuda.source import device_code
from tests.ops.emulated_cuda import Cuda, import_launch
from tests.ops.graphs import KEYS

PROBE = """
extern "C" __global__ void probe(u64 key, u64 second, u64 switch_threshold, i64 node, i64 type, i64 number,
                                 i64 bound, u64 *out) {
    u64 state = node_state(key, node);
    Variates variates = {key, second, switch_threshold};
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    out[0] = draw_bits(state, number);
    out[1] = draw_bits(typed_state(state, type), number);
    out[2] = (u64)draw_below(state, number, bound);
    out[3] = variates.of(node);
    out[4] = waiting_time(state);
}
"""
KINDS = (*[np.uint64] * 3, *[np.int64] * 4)
"""Of the numbers that the kernel takes."""


@pytest.fixture(scope="module")
def probe(cuda: Cuda) -> Callable[..., list[int]]:
    """Return a kernel that shows what the others draw by."""
    launch = import_launch()
    code = device_code() + PROBE

    def run(*numbers: int) -> list[int]:
        with cuda.running():
            module = launch.cupy.RawModule(code=code, options=launch.OPTIONS)
            with patch.object(launch, "module", lambda: module), torch.no_grad():
                launch.function_of.cache_clear()
                out = cuda.put(torch.zeros(5, dtype=torch.int64))
                launch.launch("probe", 1, *(kind(number) for kind, number in zip(KINDS, numbers, strict=True)), out)
                launch.function_of.cache_clear()
                return [value % 2**64 for value in out.tolist()]

    return run


@given(KEYS, KEYS, st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2**62), st.integers(0, 99), st.data())
def test_the_device_draws_the_same_bits(
    probe: Callable[..., list[int]], key: int, second: int, share: int, node: int, edge_type: int, data: st.DataObject
) -> None:
    number, bound = data.draw(st.integers(0, 1000)), data.draw(st.integers(1, 2**62))
    bits, typed, below, shared, time = probe(key, second, share, node, edge_type, number, bound)
    assert bits == random.draw(key, node, number)
    assert typed == random.draw(key, node, number, edge_type)
    assert below == random.bounded(bits, bound)
    assert shared == random.variate((key, second), share, node)
    assert time >= random.mix(key ^ (node * random.NODE)) >> 16
