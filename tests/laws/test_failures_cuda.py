"""Correctness on a GPU after an allocation or the launch of a kernel fails."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import SamplingRequest
from graphfeed.storage.memory import tensors_in
from tests.stand_ins.compiled_kernels import COMPILER
from tests.stand_ins.emulated_cuda import EmulatedCuda, device_of
from tests.stand_ins.failures import NotStartedError, failing_at
from tests.unit.ops.test_gpu_work import graph

pytestmark = [pytest.mark.compile, pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels")]
ROWS = torch.arange(400.0).view(100, 4)


def short_of_memory(make: Callable[[], Callable[[], Any]], expected: Any) -> list[str]:
    """Make each allocation and each kernel of a call fail in turn; return the allocations without which it raises.

    Other results must be correct nevertheless, and so must later results of the same object.
    """
    needed = []
    for number in count(1):
        call = make()
        with failing_at(number) as seen:
            try:
                assert call() == expected
            except torch.cuda.OutOfMemoryError:
                needed.append(seen[-1])
            except NotStartedError:
                pass
        if len(seen) < number:
            return needed
        assert call() == expected, seen[-1]
    raise AssertionError


def sampled(there: gf.FusedCSCSamplingGraph, put: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    seeds = put(torch.tensor([0, 9, 3]))
    given: Any = seeds if there.node_type_to_id is None else {"item": seeds, "user": seeds}
    hops = there.sample_hops(given, SamplingRequest([torch.tensor([2])] * 2), [1, 2])
    return [part.tolist() for part in tensors_in(hops)]


@pytest.mark.parametrize("typed", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_hops_for_whose_bounds_no_memory_is_left_are_counted_first(typed: bool) -> None:
    cuda = EmulatedCuda()
    expected = sampled(graph(typed=typed), torch.clone)
    with cuda.running():
        there = graph(typed=typed).to(device_of(cuda))
        # Seeds of several types are joined before.
        assert len(short_of_memory(lambda: lambda: sampled(there, cuda.put), expected)) <= typed


def test_a_cache_has_no_wrong_rows_after_a_failure() -> None:
    cuda, ids = EmulatedCuda(), torch.arange(40).flip(0)

    def make() -> Callable[[], Any]:
        feature = gf.gpu_cached_feature(gf.TorchBasedFeature(cuda.pin(ROWS)), 30 * 64, torch.device(device_of(cuda)))
        feature.read(cuda.put(ids + 20))
        return lambda: feature.read(cuda.put(ids)).tolist()

    with cuda.running():
        assert short_of_memory(make, ROWS[ids].tolist()) != []
