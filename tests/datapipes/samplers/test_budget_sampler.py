from typing import Any

import pytest
import torch

import graphfeed as gf
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
    with pytest.raises(TypeError, match="graph must be a FusedCSCSamplingGraph, but is a str"):
        make_pipe("graph", [1])  # type: ignore[arg-type]
