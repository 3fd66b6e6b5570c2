import copy
import pickle

import pytest
import torch

from graphfeed import ops
from graphfeed.ops import GuidedSums
from graphfeed.storage import SamplingRequest, fused_csc_sampling_graph
from graphfeed.storage.graph.sampling.all_hops import weights_for
from tests.ops.locked_memory import LockedMemory
from tests.storage.graph.test_fused_csc_sampling_graph import make_typed_graph

SKEWED = 1 / (torch.rand(4000, generator=torch.manual_seed(0)) + 1e-6)
FANOUTS = (torch.tensor([2]),)


def test_guides_are_made_once_and_go_with_the_weights_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fused_csc_sampling_graph(torch.tensor([0, 4000]), torch.zeros(4000, dtype=torch.int64))
    graph.add_edge_attribute("w", SKEWED)
    graph.prepare(SamplingRequest(FANOUTS, probs_name="w"))
    made = graph.guided_sums("w").guides
    assert made.numel() == 4000
    assert graph.guided_sums("w").guides is made
    with monkeypatch.context() as patch:
        patch.setattr(ops, "guide_sums", None)
        patch.setattr(ops, "cumulate_weights", None)
        for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
            assert torch.equal(other.guided_sums("w").guides, made)
    graph.add_edge_attribute("w", torch.ones(4000))
    assert graph.guided_sums("w").guides.numel() == 0


def test_requests_whose_kernels_take_no_guides_get_the_sums_alone() -> None:
    graph, request = make_typed_graph(w=torch.ones(6)), SamplingRequest(FANOUTS, probs_name="w")
    assert isinstance(weights_for(graph, request), torch.Tensor)
    assert weights_for(graph, SamplingRequest(FANOUTS)) is None
    untyped = fused_csc_sampling_graph(torch.tensor([0, 4000]), torch.zeros(4000, dtype=torch.int64))
    untyped.add_edge_attribute("w", SKEWED)
    assert isinstance(weights_for(untyped, request), GuidedSums)
    assert isinstance(weights_for(untyped, SamplingRequest(FANOUTS, probs_name="w", strategy="labor")), torch.Tensor)
    with LockedMemory().installed():
        untyped.pin_memory_()
        assert isinstance(weights_for(untyped, request), torch.Tensor)
        del untyped
