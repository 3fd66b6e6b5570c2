from importlib import import_module
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds, put_columns
from tests.ops.hops import sample_all

ONE_HOP = import_module("graphfeed.ops.sampling.hops.one_hop")


@pytest.mark.parametrize("dtypes", [*product(ID_DTYPES, ID_DTYPES)], ids=str)
@given(graphs_and_seeds(), st.lists(FANOUTS, min_size=1, max_size=3), KEYS, st.data())
def test_hops_are_those_of_the_cpu(
    cuda: Cuda,
    dtypes: tuple[torch.dtype, torch.dtype],
    given: tuple[Graph, list[int]],
    fanouts: list[int],
    key: int,
    data: st.DataObject,
) -> None:
    method: Any = data.draw(st.sampled_from(["uniform", "labor"]))
    drawing: dict[str, Any] = {"replace": data.draw(st.booleans()), "switch_threshold": 2**63}
    columns = given[0].arrays(*dtypes, weighted=data.draw(st.booleans()))
    keys: list[Any] = [(key + hop) % 2**64 for hop in range(len(fanouts))]
    keys = [(own, key) for own in keys] if method == "labor" else keys

    def sample(put: Any) -> list[ops.SampledHop] | None:
        indptr, indices, cumulative, *_ = put_columns(put, columns)
        seeds = put(torch.tensor(given[1], dtype=dtypes[1]))
        return sample_all(indptr, indices, seeds, fanouts, keys, method, cumulative=cumulative, **drawing)

    expected = sample(lambda tensor: tensor)
    most = data.draw(st.sampled_from([0, 9, ONE_HOP.MOST_EDGES]))
    with cuda.running(), patch.object(ONE_HOP, "MOST_EDGES", most):
        check_equal(cuda, sample(cuda.put), expected)
