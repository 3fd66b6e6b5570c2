"""What the public methods of a graph don't show of one hop; the rest is tested by them."""

from typing import Any

import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage.graph.sampling.one_hop import EdgeArrays, sample_one_hop
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.digests import assert_same
from tests.pipelines import random_edges

KINDS = {"a:r:b": 0, "b:s:a": 1}
EDGES = {kind: random_edges(20, 20, 100, place) for kind, place in KINDS.items()}
WEIGHTS = {kind: torch.arange(100.0) for kind in KINDS}
TYPED = gf.from_coo(EDGES, {"a": 20, "b": 20}, edge_attributes={"w": WEIGHTS})
SINGLE = gf.from_coo(EDGES["a:r:b"], 20)


def test_kernels_get_the_arrays_of_the_graph_by_name() -> None:
    arrays = EdgeArrays.of(TYPED, "w")
    assert arrays.indices is TYPED.indices
    assert arrays.types is TYPED.type_per_edge
    assert arrays.edge_ids is TYPED.edge_attribute(gf.ORIGINAL_EDGE_ID)
    assert arrays.weights is TYPED.cumulative_weights("w")
    assert EdgeArrays.of(SINGLE)[1:3] == (None, None)


def test_picks_are_returned_in_the_order_of_the_columns() -> None:
    """Those of a graph with types too, whose subgraph has them by type."""
    for graph, seeds in (
        (SINGLE, torch.tensor([3, 1])),
        (TYPED, {"a": torch.tensor([3, 1]), "b": torch.tensor([2])}),
    ):
        arrays = EdgeArrays.of(graph)
        asked: list[Any] = []

        def pick(ids: Any, edges: Any, num_types: int, graph: Any = graph, asked: Any = asked) -> ops.Picks:
            asked.append((ids, edges, num_types))
            columns = ops.StaticGraph(graph.csc_indptr, types=edges.types, num_types=num_types)
            return ops.sample_neighbors(columns, ops.OneHop(ids, torch.tensor([-1]), (0,)))

        hop, picks = sample_one_hop(graph, seeds, pick, lambda _, arrays=arrays: arrays)  # type: ignore[misc]
        ((ids, edges, num_types),) = asked
        assert edges is arrays
        assert num_types == (1 if graph is SINGLE else 2)
        starts, ends = graph.csc_indptr[ids].tolist(), graph.csc_indptr[ids + 1].tolist()
        expected = [place for start, end in zip(starts, ends, strict=True) for place in range(start, end)]
        assert picks.positions.tolist() == expected
        assert sum(map(len, tensors_in(hop.original_edge_ids))) == len(expected)
        assert_same(hop.original_column_node_ids, seeds)
