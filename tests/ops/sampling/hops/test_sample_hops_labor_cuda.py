from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, KEYS, Graph, graphs_and_seeds
from tests.ops.hops import sample_all
from tests.ops.sampling.test_sample_neighbors_labor_cuda import arrays


@given(graphs_and_seeds(), st.lists(FANOUTS, min_size=1, max_size=3), KEYS, st.booleans(), st.booleans())
def test_hops_are_those_of_the_cpu(
    cuda: Cuda, given: tuple[Graph, list[int]], fanouts: list[int], key: int, replace: bool, weighted: bool
) -> None:
    graph, seeds = given
    keys = [((key + hop) % 2**64, key) for hop in range(len(fanouts))]

    def sample(put: Any) -> list[ops.SampledHop] | None:
        indptr, indices, weights, _ = map(put, arrays(graph, torch.int32))
        return sample_all(
            indptr,
            indices,
            put(torch.tensor(seeds, dtype=torch.int32)),
            fanouts,
            keys,
            "labor",
            switch_threshold=2**63,
            replace=replace,
            cumulative=weights if weighted else None,
        )

    expected = sample(lambda tensor: tensor)
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)
