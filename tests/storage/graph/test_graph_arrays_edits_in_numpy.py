"""What a program writes through a NumPy array that shares a graph's memory, which torch does not notice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops

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


@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
@pytest.mark.parametrize("wrong", [2**40, -1, NUM_NODES])
@pytest.mark.parametrize("how", PIPES)
def test_an_id_that_is_no_node_is_an_error_that_says_what_to_call(how: str, wrong: int, typed: bool) -> None:
    indices = np.arange(NUM_NODES * DEGREE) % NUM_NODES
    graph = make_graph(indices, typed)
    seeds, timed = ((gf.HeteroItemSet({"n": part}) if typed else part) for part in (SEEDS, TIMED_SEEDS))
    pipe = PIPES[how](graph, seeds, timed)
    indices[:] = wrong
    with pytest.raises(ValueError, match=r"a node that the graph does not have.*graph\.check\(\)"):
        run(pipe)
    indices[:] = np.arange(indices.size) % NUM_NODES
    graph.check()
    assert len(run(pipe)) == 1


@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
@pytest.mark.parametrize("wrong", [2**62, -(2**62), NUM_NODES * DEGREE + 1, "falling"])
@pytest.mark.parametrize("prepare", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("how", PIPES)
def test_columns_that_lead_beyond_the_edges_are_an_error(how: str, prepare: bool, wrong: Any, typed: bool) -> None:
    indptr, indices = np.arange(0, NUM_NODES * DEGREE + 1, DEGREE), np.arange(NUM_NODES * DEGREE) % NUM_NODES
    graph = make_graph(indices, typed, indptr)
    seeds, timed = ((gf.HeteroItemSet({"n": part}) if typed else part) for part in (SEEDS, TIMED_SEEDS))
    pipe = PIPES[how](graph, seeds, timed)
    if prepare:
        run(pipe)
    indptr[1:] = indptr[:0:-1].copy() if wrong == "falling" else wrong
    with pytest.raises(ValueError, match=r"does not have: csc_indptr.*graph\.check\(\)|indptr must|equally|must have"):
        run(pipe)
    indptr[:] = np.arange(0, indptr.size * DEGREE, DEGREE)
    graph.check()
    assert len(run(pipe)) == 1


@pytest.mark.parametrize("fanouts", [[3, 3], [-1], [[2], [2]]], ids=str)
def test_an_edge_type_that_there_is_not_is_an_error(fanouts: Any) -> None:
    types = np.zeros(NUM_NODES * DEGREE, np.uint8)
    graph = make_graph(np.arange(NUM_NODES * DEGREE) % NUM_NODES, True, edge_types=types)
    pipe = gf.ItemSampler(gf.HeteroItemSet({"n": SEEDS}), 20).sample_neighbor(graph, fanouts)
    types[:] = 255
    with pytest.raises(ValueError, match=r"does not have: csc_indptr, indices or type_per_edge"):
        run(pipe)
    types[:] = 0
    graph.check()
    assert len(run(pipe)) == 1


@pytest.mark.parametrize("prepare", [False, True], ids=["before", "after"])
def test_what_a_graph_prepares_of_edited_ids_is_refused(prepare: bool) -> None:
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
        run(pipes[1])  # reads the copy of the ids that it made before


def test_walks_stop_at_an_id_that_is_no_node() -> None:
    indptr, indices = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    assert ops.random_walks(indptr, indices, torch.tensor([0]), 2, 7).tolist() == [[0, 1, 0]]
    indices.numpy()[:] = 2**40
    with pytest.raises(ValueError, match="a node that the graph does not have"):
        ops.random_walks(indptr, indices, torch.tensor([0]), 2, 7)
    indices.numpy()[:], indptr.numpy()[1:] = [1, 0], 2**61
    with pytest.raises(ValueError, match="an edge or a node that the graph does not have"):
        ops.random_walks(indptr, indices, torch.tensor([0]), 2, 7)


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
