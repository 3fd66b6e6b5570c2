from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds
from tests.ops.hops import sample_all


@pytest.mark.parametrize("dtypes", [(one, other) for one in ID_DTYPES for other in ID_DTYPES], ids=str)
@given(graphs_and_seeds(), st.lists(FANOUTS, min_size=1, max_size=3), KEYS, st.booleans(), st.booleans())
def test_layers_are_those_of_the_cpu(
    cuda: Cuda,
    dtypes: tuple[torch.dtype, torch.dtype],
    given: tuple[Graph, list[int]],
    fanouts: list[int],
    key: int,
    replace: bool,
    weighted: bool,
) -> None:
    graph, seeds = given
    weights = torch.tensor(reference.cumulate_weights(graph.indptr, graph.weights), dtype=torch.int64)

    def sample(put: Any) -> list[ops.SampledHop] | None:
        return sample_all(
            put(torch.tensor(graph.indptr, dtype=dtypes[0])),
            put(torch.tensor(graph.indices, dtype=dtypes[1])),
            put(torch.tensor(seeds, dtype=dtypes[1])),
            fanouts,
            [(key + hop) % 2**64 for hop in range(len(fanouts))],
            replace=replace,
            cumulative=put(weights) if weighted else None,
        )

    expected = sample(lambda tensor: tensor)
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)
