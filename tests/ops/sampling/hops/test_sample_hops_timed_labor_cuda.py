from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import KEYS
from tests.ops.hops import sample_timed
from tests.ops.timed import TimedGraph, put_columns, timed_graphs


@given(
    timed_graphs(most=33),
    st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=1, max_size=3),
    KEYS,
    st.sampled_from([None, 0, 700]),
    st.data(),
)
def test_hops_are_those_of_the_cpu(
    cuda: Cuda, graph: TimedGraph, fanouts: list[int], key: int, window: int | None, data: st.DataObject
) -> None:
    replace, own_times = data.draw(st.booleans()), data.draw(st.booleans())
    columns = graph.columns(torch.int32, weighted=data.draw(st.booleans()))
    if own_times:
        columns = columns._replace(edge_times=torch.arange(len(graph.indices)) % 9 - 4)

    def sample(put: Any) -> list[ops.SampledHop]:
        seeds, times = map(put, graph.asked(torch.int32))
        keys = [((key + hop) % 2**64, key) for hop in range(len(fanouts))]
        options: dict[str, Any] = {"switch_threshold": 2**63, "replace": replace, "window": window, "method": "labor"}
        return sample_timed(put_columns(put, columns), seeds, times, fanouts, keys, **options)

    expected = sample(lambda tensor: tensor)
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)
