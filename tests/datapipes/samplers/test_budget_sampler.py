from itertools import pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.samplers.budget_sampler import edge_runs
from graphfeed.datapipes.sources.iterable_source import IterableSource
from tests.pipelines import random_edges

SIZES = {"a": 200, "b": 120, "c": 40}
KINDS = ["b:to:a", "c:to:a", "a:to:b", "a:to:a", "b:to:c"]


EDGES = {kind: random_edges(SIZES[kind[0]], SIZES[kind[-1]], 700, seed) for seed, kind in enumerate(KINDS)}


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES, SIZES)


def make_pipe(graph: gf.FusedCSCSamplingGraph, num_samples: Any) -> gf.Datapipe:
    seeds = gf.HeteroItemSet({"a": gf.ItemSet(torch.arange(200), names="seeds")})
    return gf.ItemSampler(seeds, batch_size=50, shuffle=True).sample_by_budget(graph, num_samples)


def test_a_mini_batch_has_so_many_nodes_of_each_type_and_all_edges_among_them() -> None:
    graph = make_graph()
    minibatch: Any
    for minibatch in make_pipe(graph, {"a": [10, 20], "b": [7], "c": [5, 3]}):
        nodes = minibatch.input_nodes
        assert {kind: len(ids) for kind, ids in nodes.items()} == {"a": 80, "b": 7, "c": 8}
        assert nodes["a"][:50].tolist() == minibatch.seeds["a"].tolist()
        (hop,) = minibatch.sampled_subgraphs
        for kind in KINDS:
            assert len(nodes[kind[0]].unique()) == len(nodes[kind[0]])
            sources, ends = EDGES[kind]
            inside = torch.isin(sources, nodes[kind[0]]) & torch.isin(ends, nodes[kind[-1]])
            assert hop.original_edge_ids[kind].sort().values.tolist() == inside.nonzero().squeeze(1).tolist()


def test_edges_are_in_runs_of_one_type_of_one_column() -> None:
    graph = make_graph()
    seeds = {"a": torch.tensor([3, 9, 3]), "c": torch.tensor([7])}
    hop: Any = graph.sample_neighbors(seeds, torch.full((len(KINDS),), 2), key=1)
    nodes, offsets, sources = edge_runs(hop, graph.edge_types, {"a": 0, "b": 200, "c": 320})
    assert nodes.tolist() == [3, 9, 3, 327]
    found = [sources[low:high].tolist() for low, high in pairwise(offsets.tolist())]
    expected = []
    for end, column in (("a", 0), ("a", 1), ("a", 2), ("c", 0)):
        for kind in graph.edge_types:
            csc, first = hop.sampled_csc[kind], {"a": 0, "b": 200, "c": 320}[kind[0]]
            own = csc.indices[csc.indptr[column] : csc.indptr[column + 1]] if kind[-1] == end else csc.indices[:0]
            expected.append((own + first).tolist())
    assert found == expected


def test_of_many_neighbours_fifty_have_points() -> None:
    graph = gf.from_coo({"b:to:a": (torch.arange(500), torch.zeros(500, dtype=torch.int64))}, {"a": 1, "b": 500})
    seeds = gf.HeteroItemSet({"a": gf.ItemSet(1, names="seeds")})
    for seed in range(5):
        (minibatch,) = gf.ItemSampler(seeds, 1).sample_by_budget(graph, {"a": [0], "b": [500]}).with_seed(seed)
        assert len(minibatch.input_nodes["b"].unique()) == 50


@pytest.mark.parametrize("seeds", [torch.tensor([1]), {"d": torch.tensor([1])}, {"a": torch.tensor([200])}], ids=str)
def test_wrong_seeds_are_refused(seeds: Any) -> None:
    pipe = gf.BudgetSampler(IterableSource([gf.MiniBatch(seeds=seeds)]), make_graph(), [1])
    with pytest.raises((KeyError, TypeError, ValueError), match="seeds"):
        list(pipe)


def test_a_list_holds_for_each_type() -> None:
    graph = make_graph()
    by_type = [batch.input_nodes for batch in make_pipe(graph, {kind: [4, 4] for kind in SIZES})]
    alike = [batch.input_nodes for batch in make_pipe(graph, [4, 4])]
    assert str(by_type) == str(alike)


def test_wrong_arguments_are_refused() -> None:
    graph = make_graph()
    with pytest.raises(ValueError, match=r"num_samples must have the node types \['a', 'b', 'c'\], but has \['a'\]"):
        make_pipe(graph, {"a": [1]})
    with pytest.raises(ValueError, match="num_samples must have the node types"):
        make_pipe(graph, {kind: [1] for kind in [*SIZES, "d"]})
    with pytest.raises(ValueError, match="num_samples of 'b' must be 0 or more, but is -1"):
        make_pipe(graph, {"a": [1], "b": [-1], "c": [2]})
    with pytest.raises(ValueError, match="num_samples is empty"):
        make_pipe(graph, [])
    with pytest.raises(ValueError, match="graph has no types"):
        make_pipe(gf.from_coo(([0], [1]), 2), [1])
    with pytest.raises(TypeError, match="graph must be a SamplingGraph, but is a str"):
        make_pipe("graph", [1])  # type: ignore[arg-type]
