from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, put_columns
from tests.ops.hops import sample_one
from tests.ops.timed import NUM_TYPES, timed_graphs


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("method", ["uniform", "labor"])
@given(st.lists(FANOUTS, min_size=NUM_TYPES, max_size=NUM_TYPES), KEYS, st.data())
def test_picks_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, method: str, fanouts: list[int], key: int, data: st.DataObject
) -> None:
    graph = data.draw(timed_graphs(most=130 if method == "labor" else 700))
    others = ["labor", "replace"] if method == "labor" else ["uniform", "replace", "latest"]
    drawn = data.draw(st.sampled_from(others))
    weighted, by_type = data.draw(st.booleans()) and drawn != "latest", data.draw(st.booleans())
    drawing: dict[str, Any] = {"method": drawn if drawn == "latest" else method, "replace": drawn == "replace"}
    share = data.draw(st.sampled_from([0, 2**63, 2**64 - 1]))
    asked: Any = dtype, fanouts if by_type else fanouts[:1], key, key ^ 5

    def sample(put: Any) -> ops.Picks:
        return graph.sample(*asked, put=put, weighted=weighted, switch_threshold=share, **drawing)

    expected = sample(lambda tensor: tensor)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, sample(cuda.put), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fanouts", [[60, -1, 7], [-1, -1, -1], [-1], [60]], ids=str)
def test_large_columns_are_read_by_whole_warps(cuda: Cuda, fanouts: list[int], weighted: bool) -> None:
    indptr, types = torch.tensor([0, 70, 5000]), torch.arange(5000).sub(70).clamp(min=0).div(2000).to(torch.uint8)
    times, order = ops.order_by_time(indptr, torch.randint(0, 2000, (5000,)), types if len(fanouts) > 1 else None)
    earliest, weights = times - torch.randint(0, 900, (5000,)), torch.randint(0, 3, (5000,)).float()
    columns = ops.TemporalGraph(indptr, times % 2, times, order, earliest=earliest, types=types, num_types=3)
    if weighted:
        columns = columns._replace(cumulative=ops.cumulate_weights(indptr, weights))
    seeds, at = torch.tensor([1, 0, 1]), torch.tensor([900, 1500, 1500])

    def sample(put: Any) -> ops.Picks:
        moments = {"times": put(at), "windows": put(torch.tensor([700, 1400, 1000]))}
        return sample_one(put_columns(put, columns), put(seeds), torch.tensor(fanouts), 5, **moments)

    expected = sample(lambda tensor: tensor)
    assert expected.offsets.diff().min() > 10
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)


def test_arrays_elsewhere_are_named(cuda: Cuda) -> None:
    seeds = torch.tensor([0])
    columns = ops.TemporalGraph(torch.tensor([0, 1]), seeds, seeds)
    with cuda.running():
        there = cuda.put(seeds)
        with pytest.raises(ValueError, match=r"but graph.indptr lies on cpu"):
            sample_one(columns, there, torch.tensor([1]), 0, times=there)
        with pytest.raises(ValueError, match=r"but times lies on cpu"):
            sample_one(put_columns(cuda.put, columns), there, torch.tensor([1]), 0, times=seeds)
