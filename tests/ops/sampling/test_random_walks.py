from collections.abc import Sequence

import pytest
import torch
from hypothesis import given

from graphfeed import ops
from graphfeed.ops.random import bounded, draw
from tests.ops.graphs import ID_DTYPES, KEYS, Graph, graphs_and_seeds


def walk(graph: Graph, start: int, number: int, steps: int, key: int) -> list[int]:
    """Return the nodes on one walk."""
    nodes = [start]
    for step in range(steps):
        edges: Sequence[int] = graph.indices[graph.indptr[nodes[-1]] : graph.indptr[nodes[-1] + 1]]
        nodes.append(edges[bounded(draw(key, number, step), len(edges))] if edges else nodes[-1])
    return nodes


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(graphs_and_seeds(), KEYS)
def test_equal_to_the_reference(dtype: torch.dtype, problem: tuple[Graph, list[int]], key: int) -> None:
    graph, starts = problem
    arrays = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    found = ops.random_walks(*arrays, torch.tensor(starts, dtype=torch.int64), 4, key)
    assert found.tolist() == [walk(graph, start, number, 4, key) for number, start in enumerate(starts)]
    assert found.dtype == torch.int64
    ends = found[:, 2].contiguous()
    assert ops.random_walks(*arrays, ends, 2, key, first_step=2).tolist() == found[:, 2:].tolist()


def test_wrong_arguments_are_named() -> None:
    arrays = torch.tensor([0, 1, 1]), torch.tensor([1])
    with pytest.raises(ValueError, match=r"starts must lie in 0 \.\. 1, but holds 2"):
        ops.random_walks(*arrays, torch.tensor([2]), 1, 7)
    with pytest.raises(ValueError, match="num_steps must be 0 or more, but is -1"):
        ops.random_walks(*arrays, torch.tensor([0]), -1, 7)
    with pytest.raises(TypeError, match="starts must be"):
        ops.random_walks(*arrays, torch.tensor([0.0]), 1, 7)
