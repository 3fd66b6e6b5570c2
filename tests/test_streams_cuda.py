"""What is made on one CUDA stream and used on another: caches, arrays that a graph makes, and loops left early."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import GPUFeatureCache
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests import pipelines
from tests.digests import assert_same
from tests.loader.late_streams import late_streams
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of
from tests.storage.graph.graph_kinds import CASES, plain, sample

FAR = torch.arange(60.0).reshape(20, 3)


def apart(*steps: Callable[[], Any]) -> list[Any]:
    """Run each step in a thread and on a stream of its own; nothing waits but what the steps call."""
    found = []

    def run(step: Callable[[], Any]) -> None:
        torch.cuda.set_device(0)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            found.append(step())

    for step in steps:
        thread = threading.Thread(target=run, args=(step,))
        thread.start()
        thread.join()
    assert len(found) == len(steps)
    return found


def test_a_cache_is_filled_before_another_stream_looks_into_it(cuda: Cuda) -> None:
    with cuda.running():
        (cache,) = apart(lambda: GPUFeatureCache((8, 3), torch.float32, device_of(cuda)))
        keys = torch.tensor([3, 1, 3])
        rows = apart(*[lambda: cache.query_and_replace(keys, lambda missing: FAR[missing.cpu()]).cpu()] * 2)
        assert all(torch.equal(found, FAR[keys]) for found in rows)
        apart(cache.clear)


@pytest.mark.parametrize(
    ("query", "weights"),
    [(gf.TemporalQuery("born", "time", 30, "edge"), "w"), (gf.TemporalQuery(None, "time", None, "edge"), None)],
)
def test_arrays_that_a_graph_makes_are_there_before_another_stream_reads_them(
    cuda: Cuda, query: gf.TemporalQuery, weights: str | None
) -> None:
    fanouts = [torch.tensor([fanout]) for fanout in (2, 3, -1)]
    asked = SamplingRequest(fanouts, probs_name=weights, temporal=query)
    expected = sample(plain(), CASES["plain"], asked)
    with cuda.running():
        own = plain().to(device_of(cuda))

        def sample_there() -> Any:
            return [layer.to("cpu") for layer in sample(own, CASES["plain"], asked, cuda.put)]

        for found in apart(sample_there, sample_there):
            assert_same(found, expected)


@pytest.mark.parametrize("leave_after", [1, 2])
def test_what_is_freed_after_a_loop_was_left_is_not_in_use(cuda: Cuda, leave_after: int) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device does not tell who uses what")
    pipe = pipelines.homogeneous()
    (sampler,) = gf.find(pipe, gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    assert isinstance(sampler.graph, gf.FusedCSCSamplingGraph)
    with cuda.running(), late_streams():
        there = sampler.datapipe.copy_to("meta").sample_neighbor(sampler.graph.to("meta"), sampler.fanouts)
        with gf.DataLoader(there, seed=3, overlap_graph_fetch=True) as loader:
            minibatches = iter(loader)
            for _ in range(leave_after):
                next(minibatches)
            minibatches.close()  # type: ignore[attr-defined]
        del there, loader, minibatches
