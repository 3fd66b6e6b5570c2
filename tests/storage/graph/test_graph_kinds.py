"""A graph of any kind gives the mini-batches of the graph in memory, for everything that it is asked for."""

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.digests import assert_same
from tests.ops.emulated_cuda import Cuda, device_of
from tests.storage.graph.graph_kinds import CASES, KINDS, Case, Put, requests, sample, sample_all


@cache
def expected(case: str) -> dict[str, Any]:
    return sample_all(CASES[case], CASES[case].make())


@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for kind in KINDS for case in CASES if (kind, case) != ("in lists", "typed")],
)
def test_every_mini_batch_is_that_of_the_graph_in_memory(kind: str, case: str) -> None:
    for found in KINDS[kind](CASES[case].make(), partial(sample_all, CASES[case])):
        assert_same(found, expected(case))


OnDevice = Callable[[Cuda, Case], gf.FusedCSCSamplingGraph]


def copied(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    return case.make().to(device_of(cuda))


def pinned(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    """Return a graph that the device reads over the bus."""
    graph = copy.deepcopy(case.make())
    graph.pin_memory_()
    return graph


def pinned_once_sampled(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    """Return the same, of which everything had been computed before that a request needs."""
    graph = copy.deepcopy(case.make())
    for request in requests(case).values():
        graph.prepare(request)
    graph.pin_memory_()
    return graph


def some_of(case: Case, first: int, step: int, put: Put) -> dict[str, gf.SamplingRequest]:
    return dict(list(requests(case, put).items())[first::step])


each_fifth = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
"""All requests take a minute where a GPU is emulated."""


@each_fifth
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("first", "put_there"), [(0, copied), (1, pinned), (3, pinned_once_sampled)])
def test_mini_batches_on_a_gpu_are_those_of_the_cpu(
    cuda: Cuda, put_there: OnDevice, case: str, first: int, step: int
) -> None:
    wanted = expected(case)
    with cuda.running():
        graph = put_there(cuda, CASES[case])
        for name, request in some_of(CASES[case], first % step, step, cuda.put).items():
            found = sample(graph, CASES[case], request, cuda.put)
            assert all(map(cuda.is_there, tensors_in(found))), name
            assert_same(found, wanted[name])
        del graph
