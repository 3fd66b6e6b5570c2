from itertools import pairwise
from typing import Any

import torch

import graphfeed as gf
from graphfeed.datapipes.samplers.budget_sampler import edge_runs
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


def test_a_list_holds_for_each_type() -> None:
    graph = make_graph()
    by_type = [batch.input_nodes for batch in make_pipe(graph, {kind: [4, 4] for kind in SIZES})]
    alike = [batch.input_nodes for batch in make_pipe(graph, [4, 4])]
    assert str(by_type) == str(alike)
