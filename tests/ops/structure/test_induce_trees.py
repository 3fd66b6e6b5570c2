from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.graphs import ID_DTYPES, Graph, graphs

FIRST_EDGES = import_module("graphfeed.ops.structure.induce_trees"), "FIRST_EDGES"


def slowly(graph: Graph, trees: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return the edges inside of each tree, each with the places of its ends."""
    found, first = list[tuple[int, int, int]](), 0
    for tree in trees:
        for place, node in enumerate(tree):
            edges = range(graph.indptr[node], graph.indptr[node + 1])
            sources = [(edge, graph.indices[edge]) for edge in edges if graph.indices[edge] in tree]
            found += [(first + tree.index(source), first + place, edge) for edge, source in sources]
        first += len(tree)
    return found


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("room", [0, 1 << 16])
@given(graphs(), st.data())
def test_equal_to_the_reference(dtype: torch.dtype, room: int, graph: Graph, data: st.DataObject) -> None:
    nodes = st.lists(st.integers(0, graph.num_nodes - 1), max_size=6) if graph.num_nodes else st.just([])
    trees = data.draw(st.lists(nodes, max_size=4))
    stacked = torch.tensor([node for tree in trees for node in tree], dtype=torch.int64)
    starts = torch.tensor([0, *map(len, trees)]).cumsum(0)
    arrays = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*FIRST_EDGES, room)
        found = ops.induce_trees(*arrays, stacked, stacked, starts)
    assert torch.stack(found).T.tolist() == [list(edge) for edge in slowly(graph, trees)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"columns": torch.tensor([0, 2])}, r"columns must lie in 0 \.\. 1, but holds 2"),
        ({"columns": torch.tensor([0])}, "columns must have 2 values, one per node, but has 1"),
        ({"nodes": torch.tensor([0, -1])}, "nodes must lie in 0"),
        ({"starts": torch.tensor([0, 1])}, "starts must go from 0 to 2, the number of nodes, and never fall"),
        ({"starts": torch.tensor([0, 3, 2])}, "starts must go from 0 to 2"),
        ({"starts": torch.tensor([], dtype=torch.int64)}, "starts must go from 0 to 2"),
        ({"indices": torch.tensor([1, 1])}, "indices must have 1 values"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    right = {"indptr": torch.tensor([0, 1, 1]), "indices": torch.tensor([1])}
    right |= {"columns": torch.tensor([0, 1]), "nodes": torch.tensor([0, 1]), "starts": torch.tensor([0, 2])}
    assert ops.induce_trees(**right).positions.tolist() == [0]
    with pytest.raises(ValueError, match=message):
        ops.induce_trees(**{**right, **changed})
