from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds

SHARES = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1])


def arrays(graph: Graph, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    weights = reference.cumulate_weights(graph.indptr, graph.weights)
    return (
        torch.tensor(graph.indptr),
        torch.tensor(graph.indices, dtype=dtype),
        torch.tensor(weights, dtype=torch.int64),
        torch.tensor(graph.types, dtype=torch.uint8),
    )


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(graphs_and_seeds(), st.data(), st.tuples(KEYS, KEYS), SHARES)
def test_picks_are_those_of_the_cpu(
    cuda: Cuda,
    dtype: torch.dtype,
    given: tuple[Graph, list[int]],
    data: st.DataObject,
    keys: tuple[int, int],
    share: int,
) -> None:
    graph, seeds = given
    replace, weighted, by_type = (data.draw(st.booleans()) for _ in range(3))
    fanouts = data.draw(st.lists(FANOUTS, min_size=graph.num_types, max_size=graph.num_types))
    fanouts = fanouts if by_type else fanouts[:1]

    def sample(put: Any) -> ops.Picks:
        indptr, indices, weights, types = map(put, arrays(graph, dtype))
        return ops.labor_sample_neighbors(
            indptr,
            indices,
            put(torch.tensor(seeds, dtype=dtype)),
            torch.tensor(fanouts),
            keys,
            switch_threshold=share,
            replace=replace,
            cumulative=weights if weighted else None,
            types=types if by_type else None,
            num_types=graph.num_types if by_type else 1,
        )

    expected = sample(lambda tensor: tensor)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, sample(cuda.put), expected)


def test_a_large_column_is_read_by_a_whole_warp(cuda: Cuda) -> None:
    indptr, indices = torch.tensor([0, 5000]), torch.randint(0, 300, (5000,))
    seeds, fanouts = torch.tensor([0]), torch.tensor([40])
    expected = ops.labor_sample_neighbors(indptr, indices, seeds, fanouts, (3, 4))
    with cuda.running():
        given = (cuda.put(indptr), cuda.put(indices), cuda.put(seeds))
        check_equal(cuda, ops.labor_sample_neighbors(*given, fanouts, (3, 4)), expected)
