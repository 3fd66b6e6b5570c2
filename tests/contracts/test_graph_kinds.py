"""All kinds of graphs produce the mini-batches of the graph in memory, even a user-defined one with only one hop."""

import copy
import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage import SamplingRequest
from graphfeed.storage.graph import ByType, Hop, Picked
from graphfeed.storage.memory import tensors_in
from tests.kinds.digests import assert_same, digest, digests
from tests.kinds.graph_kinds import CASES, KINDS, Case, OneHop, Put, operations, plain, requests, sample, typed
from tests.kinds.list_graph import FullListGraph, ListGraph
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda, device_of


@cache
def expected(case: str) -> dict[str, Any]:
    graph = CASES[case].make()
    return {name: sample(graph, CASES[case], request) for name, request in requests(CASES[case]).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_returns_what_it_does_in_memory(kind: str) -> None:
    for case in [CASES["plain"]] if kind == "in lists" else CASES.values():
        graph = case.make()
        for found in KINDS[kind](graph, partial(operations, case)):
            assert_same(found, operations(case, graph))


OnDevice = Callable[[Cuda, Case], gf.FusedCSCSamplingGraph]


def copied(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    return case.make().to(device_of(cuda))


def pinned(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    """Return a graph that the device reads over the bus."""
    graph = copy.deepcopy(case.make())
    graph.pin_memory_()
    return graph


def pinned_once_sampled(cuda: Cuda, case: Case) -> gf.FusedCSCSamplingGraph:
    """Return a pinned graph for which all derived arrays had been computed before."""
    graph = copy.deepcopy(case.make())
    for request in requests(case).values():
        graph.prepare(request)
    graph.pin_memory_()
    return graph


def some_of(case: Case, first: int, step: int, put: Put) -> dict[str, gf.SamplingRequest]:
    return dict(list(requests(case).items())[first::step])


each_fifth = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
"""All requests take a minute on an emulated GPU."""


@each_fifth
@pytest.mark.parametrize(("first", "put_there"), [(0, copied), (1, pinned), (3, pinned_once_sampled)])
def test_mini_batches_on_a_gpu_are_those_of_the_cpu(cuda: Cuda, put_there: OnDevice, first: int, step: int) -> None:
    for kind, case in CASES.items():
        wanted = expected(kind)
        with cuda.running():
            graph = put_there(cuda, case)
            for name, request in some_of(case, first % step, step, cuda.put).items():
                found = sample(graph, case, request, cuda.put)
                assert all(map(cuda.is_there, tensors_in(found))), (kind, name)
                assert_same(found, wanted[name], what=f"{kind} {name}")
            del graph


WHOLE = plain()
GRAPH, FULL = ListGraph(WHOLE), FullListGraph(WHOLE)
NODES = torch.arange(0, 60, 2)


def seeds(*columns: torch.Tensor, names: Any = "seeds") -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(columns if len(columns) > 1 else columns[0], names=names), 7, shuffle=True)


NODE_SEEDS, EDGE_SEEDS = seeds(NODES), seeds(NODES.view(-1, 2))
TIMED_SEEDS = seeds(NODES, NODES * 7 % 100, names=("seeds", "timestamp"))
TIME: dict[str, Any] = {"edge_timestamp_attr_name": "time"}
Build = Callable[[Any], gf.Datapipe]
PIPELINES: dict[str, Build] = {
    "neighbor": lambda graph: NODE_SEEDS.sample_neighbor(graph, [3, -1]),
    "neighbor, replace": lambda graph: NODE_SEEDS.sample_neighbor(graph, [3, 2], replace=True),
    "neighbor, each edge a row": lambda graph: NODE_SEEDS.sample_neighbor(graph, [3, 2], deduplicate=False),
    "per layer": lambda graph: NODE_SEEDS.sample_per_layer(graph.sample_neighbors, 3).compact_per_layer(True),
    "per layer, each edge a row": lambda graph: NODE_SEEDS.sample_per_layer(
        graph.sample_neighbors, 3
    ).compact_per_layer(False),
    "in subgraph": lambda graph: NODE_SEEDS.sample_in_subgraph(graph),
    "negatives": lambda graph: EDGE_SEEDS.sample_uniform_negative(graph, 2).sample_neighbor(graph, [3]),
    "excluded": lambda graph: EDGE_SEEDS.sample_neighbor(graph, [3]).exclude_seed_edges(),
    "LABOR": lambda graph: NODE_SEEDS.sample_layer_neighbor(graph, [3, 2]),
    "LABOR, each edge a row": lambda graph: NODE_SEEDS.sample_layer_neighbor(graph, [3, 2], deduplicate=False),
    "LABOR, per layer": lambda graph: NODE_SEEDS.sample_per_layer(graph.sample_layer_neighbors, 3).compact_per_layer(
        True
    ),
    "in time": lambda graph: TIMED_SEEDS.temporal_sample_neighbor(graph, [3, 2], **TIME),
}


def test_minibatches_are_those_of_the_graph_in_memory_on_any_number_of_workers() -> None:
    for name, build in PIPELINES.items():
        pipe = build(FULL if "LABOR" in name or "time" in name else GRAPH)
        expected = digests(build(WHOLE).with_seed(5))
        assert digests(pickle.loads(pickle.dumps(pipe)).with_seed(5)) == expected, name
        for workers in (0, 3):
            with gf.DataLoader(pipe, num_workers=workers, seed=5) as loader:
                assert digests(loader) == expected, name


class Recording(ListGraph):
    """Records the requests that it prepares for."""

    heard: ClassVar[list[tuple[str, SamplingRequest]]] = []

    def validate(self, request: SamplingRequest) -> None:
        super().validate(request)
        self.heard.append(("validate", request))

    def prepare(self, request: SamplingRequest) -> None:
        self.heard.append(("prepare", request))


def test_a_graph_may_validate_a_request_and_prepare_for_it_before_it_travels() -> None:
    graph = Recording(WHOLE)
    stage = NODE_SEEDS.sample_neighbor(graph, [3], replace=True)
    other = NODE_SEEDS.sample_per_layer(graph.sample_neighbors, 4)
    assert [(name, request.fanouts) for name, request in graph.heard] == [("validate", ((3,),)), ("validate", ((4,),))]
    graph.heard.clear()
    next(iter(other))
    assert graph.heard == []
    for pipe in (stage, other):
        pickle.dumps(pipe)
    assert [name for name, _ in graph.heard] == ["prepare", "prepare"]
    assert graph.heard[0][1].replace is True


class Uniform(ListGraph):
    """Declares that it ignores `replace`."""

    supported_options = ("probs_name",)

    def sample_neighbors(
        self,
        seeds: torch.Tensor,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        return super().sample_neighbors(seeds, fanouts, False, probs_name, key=key)


class Unweighted(ListGraph):
    """Declares that it ignores weights."""

    supported_options = ("replace",)

    def sample_neighbors(
        self,
        seeds: torch.Tensor,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        return super().sample_neighbors(seeds, fanouts, replace, key=key)


def test_what_a_graph_lacks_or_ignores_is_named_when_the_stage_is_made() -> None:
    uniform, unweighted = Uniform(WHOLE), Unweighted(WHOLE)
    NODE_SEEDS.sample_neighbor(unweighted, [3], replace=True)
    NODE_SEEDS.sample_neighbor(uniform, [3], prob_name="w")
    abstract: Any = gf.SamplingGraph
    check_refused([
        (lambda: next(iter(NODE_SEEDS.sample_layer_neighbor(GRAPH, [3]))), NotImplementedError,
         "ListGraph has no sample_layer_neighbors; write it, or sample with sample_neighbor"),
        (lambda: next(iter(TIMED_SEEDS.temporal_sample_neighbor(GRAPH, [3], **TIME))), NotImplementedError,
         "ListGraph has no pick for temporal hops; write it, or sample with sample_neighbor"),
        (lambda: NODE_SEEDS.sample_neighbor(GRAPH, [[1, 2]]), ValueError,
         r"fanouts\[0\] has 2 numbers; give one fan-out for all edge types"),
        (lambda: NODE_SEEDS.sample_per_layer(GRAPH.sample_neighbors, [1, 2]), ValueError,
         r"fanouts\[0\] has 2 numbers"),
        (lambda: NODE_SEEDS.sample_neighbor(unweighted, [3], prob_name="weight"), ValueError,
         "sample_neighbors of Unweighted ignores probs_name.*leave prob_name out"),
        (lambda: NODE_SEEDS.sample_neighbor(uniform, [3], replace=True), ValueError,
         "sample_neighbors of Uniform ignores replace, which the sampler uses"),
        (lambda: OneHop(WHOLE).random_walks(NODES + 30, 1), ValueError, r"starts must be in 0 \.\. 59, but holds 88"),
        (lambda: abstract(), TypeError, "abstract"),
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_walks_need_no_more_than_one_hop(dtype: torch.dtype) -> None:
    """Some nodes have no in-edges, so that walks end there."""
    ends = torch.randint(0, 60, (2, 90), generator=torch.Generator().manual_seed(1))
    whole = gf.from_coo(ends.to(dtype), 60)
    starts = torch.cat([torch.arange(60), torch.tensor([7, 7])])
    walks = OneHop(whole).random_walks(starts, 6, key=5)
    assert_same(walks, whole.random_walks(starts, 6, key=5))
    assert (walks.dtype, tuple(walks.shape)) == (torch.int64, (62, 7))
    assert walks[:, 0].tolist() == starts.tolist()
    assert not torch.equal(walks[60], walks[61])
    assert len(OneHop(whole).random_walks(starts[:0], 3)) == 0
    assert OneHop(whole).random_walks(starts, 0).tolist() == starts[:, None].tolist()


class Counted(gf.FusedCSCSamplingGraph):
    """Counts the calls of its own hops."""

    calls: ClassVar[list[str]] = []

    def sample_neighbors(self, *args: Any, **options: Any) -> Any:
        self.calls.append("sample_neighbor")
        return super().sample_neighbors(*args, **options)

    def sample_layer_neighbors(self, *args: Any, **options: Any) -> Any:
        self.calls.append("sample_layer_neighbor")
        return super().sample_layer_neighbors(*args, **options)


def test_samplers_call_the_hop_that_a_subclass_writes() -> None:
    items = gf.HeteroItemSet({"user": gf.ItemSet(4, names="seeds")})
    for stage in ("sample_neighbor", "sample_layer_neighbor"):
        Counted.calls.clear()
        own, usual = (
            digest(next(iter(getattr(gf.ItemSampler(items, batch_size=4), stage)(graph, fanouts=[1, 2]))))
            for graph in (Counted(**typed().fields()), typed())
        )
        assert Counted.calls == [stage, stage]
        assert own == usual
    case, graph = CASES["typed"], Counted(**typed().fields())
    for name, request in requests(case).items():
        if request.temporal is not None or request.strategy == "labor":
            assert_same(sample(graph, case, request), expected("typed")[name])


class OwnPick(gf.FusedCSCSamplingGraph):
    """Counts its hops."""

    picked = 0

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        type(self).picked += 1
        return super().pick(nodes, hop)


def test_a_subclass_may_pick_by_the_graph_itself() -> None:
    case, graph = CASES["plain"], OwnPick(**plain().fields())
    for name, request in requests(case).items():
        OwnPick.picked = 0
        assert_same(sample(graph, case, request), expected("plain")[name])
        assert OwnPick.picked == len(request.fanouts)


def test_each_hop_has_a_key() -> None:
    request, labor = (SamplingRequest([torch.tensor([2])], strategy=own) for own in ("uniform", "labor"))
    number: Any = np.int64(7)
    wrong: list[Any] = [
        ([1, 2], ValueError, "keys must hold 1 numbers, one per hop, but holds 2"),
        ([], ValueError, "keys must hold 1 numbers, one per hop, but holds 0"),
        ([None], TypeError, "key must be an integer"),
        ([(1, 2)], TypeError, "key must be an integer"),
    ]
    for graph in (WHOLE, GRAPH):
        assert_same(graph.sample_hops(NODES, request, [number]), graph.sample_hops(NODES, request, [7]))
        check_refused([
            *((partial(graph.sample_hops, NODES, request, keys), kind, words) for keys, kind, words in wrong),
            (partial(graph.sample_hops, NODES, labor, [(5, 6)], seed2_contribution=7), ValueError,
             r"seed2_contribution must be in 0 \.\. 1, but is 7"),
        ])  # fmt: skip


def test_weights_that_are_replaced_are_those_of_the_next_mini_batch() -> None:
    graph, other = plain(), plain()
    request = SamplingRequest([torch.tensor([2])], probs_name="w")
    graph.sample_hops(NODES, request, [1])
    for own in (graph, other):
        own.add_edge_attribute("w", torch.arange(700).float())
    assert_same(graph.sample_hops(NODES, request, [1]), other.sample_hops(NODES, request, [1]))
    graph.edge_attributes["w"][:] = 1.0
    graph.check()
    other.add_edge_attribute("w", torch.ones(700))
    assert_same(graph.sample_hops(NODES, request, [1]), other.sample_hops(NODES, request, [1]))
