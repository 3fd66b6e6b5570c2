from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES, KEYS, put_columns
from tests.ops.hops import sample_timed
from tests.ops.timed import TimedGraph, timed_graphs

FANOUTS = st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=1, max_size=3)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(timed_graphs(most=33), FANOUTS, KEYS, st.sampled_from([None, 0, 1, 700, 2**63 - 1]), st.data())
def test_hops_are_those_of_the_cpu(
    cuda: Cuda,
    dtype: torch.dtype,
    graph: TimedGraph,
    fanouts: list[int],
    key: int,
    window: int | None,
    data: st.DataObject,
) -> None:
    method: Any = data.draw(st.sampled_from(["uniform", "latest", "labor"]))
    columns = graph.columns(dtype, weighted=data.draw(st.booleans()) and method != "latest")
    if data.draw(st.booleans()):
        columns = columns._replace(edge_times=torch.arange(len(graph.indices)) % 9 - 4)

    drawing: dict[str, Any] = {"replace": method != "latest" and data.draw(st.booleans()), "switch_threshold": 2**63}
    keys: list[Any] = [(key + hop) % 2**64 for hop in range(len(fanouts))]
    keys = [(own, key) for own in keys] if method == "labor" else keys

    def sample(put: Any) -> list[ops.SampledHop]:
        seeds, times = map(put, graph.asked(dtype))
        return sample_timed(put_columns(put, columns), seeds, times, fanouts, keys, method, window, **drawing)

    expected = sample(lambda tensor: tensor)
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)


def test_wrong_seeds_and_arrays_elsewhere_are_named(cuda: Cuda) -> None:
    zero = torch.tensor([0])
    columns = ops.TemporalGraph(torch.tensor([0, 1]), zero, zero)
    with cuda.running():
        there = cuda.put(zero)
        with pytest.raises(ValueError, match=r"seeds must lie in 0 .. 0, but holds 1"):
            sample_timed(put_columns(cuda.put, columns), there + 1, there, [1], [0])
        with pytest.raises(ValueError, match=r"but graph.indices lies on cpu"):
            sample_timed(columns._replace(indptr=cuda.put(columns.indptr)), there, there, [1], [0])
