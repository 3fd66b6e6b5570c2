"""Sampling in time on a graph whose arrays lie on a GPU, or in pinned memory that a GPU reads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.digests import assert_same
from tests.ops.emulated_cuda import Cuda, device_of
from tests.pipelines import random_edges

Put = Callable[[torch.Tensor], torch.Tensor]
SEEDS, MOMENTS = torch.tensor([3, 0, 3, 7]), torch.tensor([50, 90, 20, 0])
NAMES = [("born", "time"), (None, "time"), ("born", None)]


def drawn(most: int, size: int) -> torch.Tensor:
    return torch.randint(0, most, (size,), generator=torch.Generator().manual_seed(size))


def plain() -> gf.FusedCSCSamplingGraph:
    weights = drawn(3, 600).float()
    return gf.from_coo(
        random_edges(40, 40, 600, 0),
        40,
        node_attributes={"born": drawn(60, 40)},
        edge_attributes={"time": drawn(100, 600).short(), "w": weights},
    )


def typed() -> gf.FusedCSCSamplingGraph:
    edges = {"a:r:b": random_edges(30, 20, 300, 1), "b:r:a": random_edges(20, 30, 310, 2)}
    return gf.from_coo(
        edges,
        {"a": 30, "b": 20},
        node_attributes={"born": {"a": drawn(60, 30), "b": drawn(60, 20)}},
        edge_attributes={"time": {kind: drawn(100, ends.shape[1]) for kind, ends in edges.items()}},
    )


FANOUTS = [torch.tensor([2]), torch.tensor([3]), torch.tensor([-1])]


def requested(
    names: tuple[str | None, str | None], window: Any = None, fanouts: Any = FANOUTS, **options: Any
) -> SamplingRequest:
    """Return a request that looks at each edge at its own time, if it has one."""
    query = gf.TemporalQuery(names[0], names[1], window, "edge" if names[1] else "seed")
    return SamplingRequest(fanouts, temporal=query, **options)


def layers(graph: gf.FusedCSCSamplingGraph, put: Put, request: SamplingRequest) -> list[gf.SampledSubgraph]:
    return graph.temporal_sample_hops(put(SEEDS), put(MOMENTS), request, [1, 2, 3])


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("strategy", ["uniform", "latest", "labor"])
@pytest.mark.parametrize("window", [None, 30, "each"])
def test_layers_are_those_of_the_cpu(
    cuda: Cuda, names: tuple[str | None, str | None], strategy: Any, window: Any
) -> None:
    def asked(put: Put) -> SamplingRequest:
        own = put(torch.tensor([30, 40, 0, 90])) if window == "each" else window
        weights = None if strategy == "latest" else "w"
        return requested(names, own, probs_name=weights, strategy=strategy)

    expected = layers(plain(), torch.clone, asked(torch.clone))
    with cuda.running():
        found = layers(plain().to(device_of(cuda)), cuda.put, asked(cuda.put))
        assert all(map(cuda.is_there, tensors_in(found)))
    assert_same(found, expected)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("by_type", [False, True])
def test_layers_by_type_are_those_of_the_cpu(cuda: Cuda, names: tuple[str | None, str | None], by_type: bool) -> None:
    own = requested(names, 40, [torch.tensor([2, 3]) if by_type else torch.tensor([4])] * 2)

    def sample(graph: gf.FusedCSCSamplingGraph, put: Put) -> list[gf.SampledSubgraph]:
        return graph.temporal_sample_hops({"b": put(SEEDS)}, {"b": put(MOMENTS)}, own, [1, 2])

    expected = sample(typed(), torch.clone)
    with cuda.running():
        found = sample(typed().to(device_of(cuda)), cuda.put)
        assert all(map(cuda.is_there, tensors_in(found)))
    assert_same(found, expected)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("strategy", ["uniform", "labor"])
def test_what_was_made_of_a_pinned_graph_is_pinned(
    cuda: Cuda, names: tuple[str | None, str | None], prepared: bool, window: int | None, strategy: Any
) -> None:
    own = requested(names, window, probs_name="w", strategy=strategy)
    expected = layers(plain(), torch.clone, own)
    graph = plain()
    with cuda.running():
        if prepared:
            graph.prepare(own)
        graph.pin_memory_()
        assert_same(layers(graph, cuda.put, own), expected)
        del graph


def test_weights_that_were_made_before_are_pinned_too(cuda: Cuda) -> None:
    graph = plain()
    seeds, fanouts = SEEDS, torch.tensor([4])
    expected = graph.sample_neighbors(seeds, fanouts, False, "w", key=1)
    with cuda.running():
        graph.pin_memory_()
        assert_same(graph.sample_neighbors(cuda.put(seeds), fanouts, False, "w", key=1), expected)
        del graph
