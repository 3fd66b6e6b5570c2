from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS
from tests.ops.timed import NUM_TYPES, TimedGraph, put_columns, timed_graphs

SHARES = st.sampled_from([0, 2**63, 2**64 - 1])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(
    timed_graphs(most=130),
    st.lists(FANOUTS, min_size=NUM_TYPES, max_size=NUM_TYPES),
    st.tuples(KEYS, KEYS),
    SHARES,
    st.data(),
)
def test_picks_are_those_of_the_cpu(
    cuda: Cuda,
    dtype: torch.dtype,
    graph: TimedGraph,
    fanouts: list[int],
    keys: tuple[int, int],
    share: int,
    data: st.DataObject,
) -> None:
    replace, weighted, by_type = (data.draw(st.booleans()) for _ in range(3))
    columns = graph.columns(dtype, weighted=weighted, by_type=by_type)

    def sample(put: Any) -> ops.Picks:
        seeds, times = map(put, graph.asked(dtype))
        return ops.temporal_labor_sample_neighbors(
            put_columns(put, columns),
            seeds,
            times,
            torch.tensor(fanouts if by_type else fanouts[:1]),
            keys,
            switch_threshold=share,
            replace=replace,
            windows=None if graph.windows is None else put(torch.tensor(graph.windows, dtype=torch.int64)),
        )

    expected = sample(lambda tensor: tensor)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, sample(cuda.put), expected)
