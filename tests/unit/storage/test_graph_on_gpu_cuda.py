"""Checks of a graph on a GPU; its mini-batches are tested in `test_graph_kinds.py`."""

import pytest
import torch

from graphfeed.storage import SamplingRequest
from graphfeed.storage.graph.sampling.prepared import prepare_hops
from tests.kinds.graph_kinds import plain, typed
from tests.stand_ins.emulated_cuda import Cuda, device_of

REQUEST = SamplingRequest([torch.tensor([2])] * 2)


def test_seeds_outside_of_their_type_and_a_graph_that_is_not_pinned_are_refused(cuda: Cuda) -> None:
    with cuda.running():
        seeds = {"user": cuda.put(torch.tensor([29])), "item": cuda.put(torch.tensor([3, 40]))}
        with pytest.raises(ValueError, match=r"seeds of type 'item' must be in 0 \.\. 39, but holds 40"):
            typed().to(device_of(cuda)).sample_hops(seeds, REQUEST, [1, 2])
        with pytest.raises(ValueError, match=r"page-lock it with pin_memory_\(\)"):
            plain().sample_hops(cuda.put(torch.arange(3)), REQUEST, [1, 2])


def test_hops_are_prepared_once_unless_streams_have_to_wait_for_derived_arrays(cuda: Cuda) -> None:
    with cuda.running():
        there, weighted = plain().to(device_of(cuda)), SamplingRequest(REQUEST.fanouts, probs_name="w")
        first, again = (prepare_hops(there, REQUEST, False, on_cpu=False) for _ in range(2))
        assert again is first
        first, again = (prepare_hops(there, weighted, False, on_cpu=False) for _ in range(2))
        assert again is not first
