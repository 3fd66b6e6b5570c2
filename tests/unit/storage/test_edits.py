"""In-place edits of the arrays of a graph, by torch or by NumPy arrays that share the memory.

Torch detects only the former; both need a call of `check`.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage.graph.sampling import prepared
from graphfeed.testing import limits
from tests.kinds.digests import digests
from tests.unit.ops.test_checks import large_graph

NODES, EDGES = 40, 900


def test_a_check_after_edits_refuses_what_is_no_graph_and_so_does_sampling_from_then_on() -> None:
    graph = large_graph()
    pipe = gf.ItemSampler(gf.ItemSet(10, names="seeds"), batch_size=10).sample_neighbor(graph, [2])
    assert len(list(pipe)) == 1
    graph.csc_indptr[5] = 2**40
    for sample in (graph.check, lambda: list(pipe), graph.high_degree_index):
        with pytest.raises(ValueError, match="csc_indptr must not decrease, but goes from 1099511627776 to 12 at"):
            sample()
    graph.csc_indptr[5] = 10
    assert len(list(pipe)) == 1
    graph.indices[7] = 3000
    with pytest.raises(ValueError, match=r"indices must be in 0 \.\. 2999, but holds 3000"):
        graph.check()


def test_what_was_not_checked_when_it_was_made_is_checked_before_it_is_sampled() -> None:
    fields = gf.from_coo({"a:to:b": ([0, 1], [0, 1]), "b:to:a": ([1], [0])}, {"a": 2, "b": 2}).fields()
    graph = gf.FusedCSCSamplingGraph(**{**fields, "type_per_edge": torch.tensor([1, 0, 200])})
    items = gf.ItemSampler(gf.HeteroItemSet({"b": gf.ItemSet(2, names="seeds")}), batch_size=2)
    with pytest.raises(ValueError, match="type_per_edge"):
        list(items.sample_neighbor(graph, [2, 2]))


def random_graph(seed: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph with weights and times, and with column starts that kernels need in a wider dtype."""
    chance = torch.Generator().manual_seed(seed)
    starts = torch.randint(EDGES, (NODES - 1,), generator=chance).sort().values
    return gf.fused_csc_sampling_graph(
        torch.cat([torch.tensor([0]), starts, torch.tensor([EDGES])]).int(),
        torch.randint(NODES, (EDGES,), generator=chance),
        node_attributes={"born": torch.randint(50, (NODES,), generator=chance)},
        edge_attributes={
            "w": (torch.rand(EDGES, generator=chance) - 0.5).clamp(min=0),
            "time": torch.randint(50, (EDGES,), generator=chance),
        },
    )


def ways_to_sample(graph: gf.FusedCSCSamplingGraph) -> Iterator[gf.Datapipe]:
    """Yield pipelines for all arrays that are derived from those of a graph."""
    seeds = gf.ItemSet((torch.arange(NODES), torch.full((NODES,), 40)), names=("seeds", "timestamp"))
    items = gf.ItemSampler(seeds, batch_size=NODES)
    yield items.sample_neighbor(graph, [3, 3], prob_name="w")
    yield items.sample_layer_neighbor(graph, [3, 3])
    for hop_time in ("seed", "edge"):
        yield items.temporal_sample_neighbor(
            graph, [3, 3], prob_name="w", edge_timestamp_attr_name="time", hop_time=hop_time, inclusive=True
        )
    yield items.temporal_sample_neighbor(
        graph, [3], pre_time_window=20, node_timestamp_attr_name="born", edge_timestamp_attr_name="time"
    )


def sampled(graph: gf.FusedCSCSamplingGraph) -> list[list[str]]:
    return [digests(pipe) for pipe in ways_to_sample(graph)]


@limits(index_degree=2, index_share=1)
def test_mini_batches_after_edits_in_place_and_a_check_are_those_of_new_arrays() -> None:
    graph, other = random_graph(0), random_graph(1)
    before, expected = sampled(graph), sampled(other)
    assert sampled(graph) == before  # what was prepared is kept from now on
    assert all(own != its for own, its in zip(before, expected, strict=True))
    graph.csc_indptr.copy_(other.csc_indptr)
    graph.indices.copy_(other.indices)
    for mine, its in ((graph.node_attributes, other.node_attributes), (graph.edge_attributes, other.edge_attributes)):
        for name in its:
            mine[name].copy_(its[name])
    graph.check()
    assert sampled(graph) == expected


def test_hops_that_are_prepared_during_an_edit_are_neither_used_again_nor_kept_in_memory() -> None:
    prepare, other = prepared.record_of, random_graph(1)
    names = ["csc_indptr", "indices", "node_attributes", "edge_attributes"]
    edited = [gf.FusedCSCSamplingGraph(**{**random_graph(0).fields(), name: getattr(other, name)}) for name in names]
    for name, number, after in (
        (name, *case) for name, graph in zip(names, edited, strict=True) for case in enumerate(sampled(graph))
    ):
        graph = random_graph(0)
        pipe = list(ways_to_sample(graph))[number]
        made: list[Any] = []

        def prepare_and_edit(
            *given: Any, graph: Any = graph, made: list[Any] = made, name: str = name, **options: Any
        ) -> Any:
            arrays = prepare(*given, **options)
            made.append(weakref.ref(arrays.indptr))
            setattr(graph, name, getattr(other, name))
            return arrays

        with patch.object(prepared, "record_of", prepare_and_edit):
            digests(pipe)
        gc.collect()
        assert len(made) == 1
        if not name.endswith("attributes"):  # An edit of attributes keeps the array of the starts of columns.
            assert made[0]() is None
        assert digests(pipe) == after


NUM_NODES, DEGREE = 200, 3
SEEDS = gf.ItemSet(torch.arange(20), names="seeds")
TIMED_SEEDS = gf.ItemSet((torch.arange(20), torch.full((20,), 1000)), names=("seeds", "timestamp"))


def make_graph(indices: Any, typed: bool, indptr: Any = None, edge_types: Any = None) -> gf.FusedCSCSamplingGraph:
    """Return a graph that shares an array of sources, with times that do not ascend."""
    edges = len(indices)
    edge_types = np.zeros(edges, np.uint8) if edge_types is None else edge_types
    types: dict[str, Any] = {}
    if typed:
        types = {
            "node_type_offset": torch.tensor([0, NUM_NODES]), "type_per_edge": torch.from_numpy(edge_types),
            "node_type_to_id": {"n": 0}, "edge_type_to_id": {"n:to:n": 0},
        }  # fmt: skip
    indptr = np.arange(0, edges + 1, edges // NUM_NODES) if indptr is None else indptr
    times = {"time": torch.arange(edges).flip(0), "weight": torch.ones(edges)}
    columns = torch.from_numpy(indptr), torch.from_numpy(indices)
    return gf.fused_csc_sampling_graph(*columns, edge_attributes=times, **types)


def run(pipe: Any) -> list[Any]:
    return list(gf.DataLoader(pipe))


PIPES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "uniform": lambda graph, seeds, _: gf.ItemSampler(seeds, 20).sample_neighbor(graph, [3, 3]),
    "by weight": lambda graph, seeds, _: gf.ItemSampler(seeds, 20).sample_neighbor(graph, [2, 2], prob_name="weight"),
    "labor": lambda graph, seeds, _: gf.ItemSampler(seeds, 20).sample_layer_neighbor(graph, [2, 2]),
    "in time": lambda graph, _, seeds: gf.ItemSampler(seeds, 20).temporal_sample_neighbor(
        graph, [3, 3], edge_timestamp_attr_name="time"
    ),
}


def pipe_of(how: str, graph: gf.FusedCSCSamplingGraph, typed: bool) -> Any:
    seeds, timed = ((gf.HeteroItemSet({"n": part}) if typed else part) for part in (SEEDS, TIMED_SEEDS))
    return PIPES[how](graph, seeds, timed)


EACH_WAY = list(product(PIPES, [False, True]))


def test_an_id_that_is_no_node_is_an_error_that_says_what_to_call() -> None:
    indices = np.arange(NUM_NODES * DEGREE) % NUM_NODES
    for (how, typed), wrong in product(EACH_WAY, (2**40, -1, NUM_NODES)):
        graph = make_graph(indices, typed)
        pipe = pipe_of(how, graph, typed)
        indices[:] = wrong
        with pytest.raises(ValueError, match=r"a node that the graph does not have.*graph\.check\(\)"):
            run(pipe)
        indices[:] = np.arange(indices.size) % NUM_NODES
        graph.check()
        assert len(run(pipe)) == 1


@pytest.mark.parametrize("prepare", [False, True], ids=["before", "after"])
def test_columns_that_lead_beyond_the_edges_are_an_error(prepare: bool) -> None:
    indptr, indices = np.arange(0, NUM_NODES * DEGREE + 1, DEGREE), np.arange(NUM_NODES * DEGREE) % NUM_NODES
    words = r"does not have: csc_indptr.*graph\.check\(\)|indptr must|equally|must have"
    ends: list[Any] = [2**62, -(2**62), NUM_NODES * DEGREE + 1, indptr[:0:-1].copy()]
    for (how, typed), wrong in product(EACH_WAY, ends):
        graph = make_graph(indices, typed, indptr)
        pipe = pipe_of(how, graph, typed)
        if prepare:
            run(pipe)
        indptr[1:] = wrong
        with pytest.raises(ValueError, match=words):
            run(pipe)
        indptr[:] = np.arange(0, indptr.size * DEGREE, DEGREE)
        graph.check()
        assert len(run(pipe)) == 1


def test_an_edge_type_that_there_is_not_is_an_error() -> None:
    types = np.zeros(NUM_NODES * DEGREE, np.uint8)
    graph = make_graph(np.arange(NUM_NODES * DEGREE) % NUM_NODES, True, edge_types=types)
    fanouts: Any
    for fanouts in ([3, 3], [-1], [[2], [2]]):
        pipe = gf.ItemSampler(gf.HeteroItemSet({"n": SEEDS}), 20).sample_neighbor(graph, fanouts)
        types[:] = 255
        with pytest.raises(ValueError, match=r"does not have: csc_indptr, indices or type_per_edge"):
            run(pipe)
        types[:] = 0
        graph.check()
        assert len(run(pipe)) == 1


def test_what_a_graph_prepares_of_edited_ids_is_refused() -> None:
    for prepare in (False, True):
        indices = np.zeros(NUM_NODES * 1500, dtype=np.int64)
        graph = make_graph(indices, typed=False)
        pipes = [PIPES[how](graph, SEEDS, TIMED_SEEDS) for how in ("labor", "in time")]
        if prepare:
            for pipe in pipes:
                run(pipe)
        indices[:] = 2**31
        for pipe in pipes[: 1 if prepare else 2]:
            with pytest.raises(ValueError, match="a node that the graph does not have"):
                run(pipe)
        if prepare:
            run(pipes[1])  # reads its earlier copy of the ids


@pytest.mark.parametrize("q", [1.0, 2.0])
def test_walks_stop_at_an_id_that_is_no_node(q: float) -> None:
    indptr, indices, zero = torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([0])
    graph, steps = ops.Graph.checked(indptr, indices), ops.WalkSteps(2, q=q)

    def walk() -> ops.Walks:
        return ops.random_walks(graph, zero, zero, 7, steps, sources=torch.tensor([1, 0]))

    assert walk().nodes.tolist() == [[0, 1, 0]]
    indices.numpy()[:] = 2**40
    with pytest.raises(ValueError, match="a node that the graph does not have"):
        walk()
    indices.numpy()[:], indptr.numpy()[1:] = [1, 0], 2**61
    with pytest.raises(ValueError, match="an edge or a node that the graph does not have"):
        walk()


def test_trees_and_negatives_read_no_edge_beyond_the_last() -> None:
    indptr, indices, nodes = torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([0, 1])
    ops.structure.induce_trees(indptr, indices, nodes, nodes, torch.tensor([0, 2]))
    graph = gf.fused_csc_sampling_graph(indptr, indices)
    pairs = gf.ItemSampler(gf.ItemSet(torch.tensor([[0, 1]]), names="seeds"), 1)
    pipe = pairs.sample_negative_pairs(graph, "binary", query=gf.NegativeQuery(strict=True))
    indptr.numpy()[1] = 2**61
    with pytest.raises(ValueError, match="an edge or a node that the graph does not have"):
        ops.structure.induce_trees(indptr, indices, nodes, nodes, torch.tensor([0, 2]))
    assert len(run(pipe)) == 1
