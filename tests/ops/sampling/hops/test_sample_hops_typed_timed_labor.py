from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.graphs import ID_DTYPES
from tests.ops.hops import sample_typed_timed
from tests.ops.sampling.hops.test_sample_hops_typed_timed import FIRST_EDGES, right
from tests.ops.typed_timed import TypedInTime, problems_in_time


@given(st.sampled_from(ID_DTYPES), problems_in_time(), st.sampled_from([0, 1 << 62, 3 << 62]))
def test_equal_to_the_reference(dtype: torch.dtype, problem: TypedInTime, share: int) -> None:
    steps = [(fanouts, ((key, key ^ 5), share)) for fanouts, key in problem.hops]
    expected = problem.expected(steps, "replace" if problem.replace else "")
    pairs = [draws[0] for _, draws in steps[: len(expected)]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*FIRST_EDGES, problem.first_edges)
        drawing: Any = {"method": "labor", "switch_threshold": share, "replace": problem.replace}
        found = sample_typed_timed(**problem.arguments(dtype, len(expected)), keys=pairs, **drawing)
    problem.check(found, expected, dtype)


@pytest.mark.parametrize(
    ("keys", "message"),
    [([(1, 2)], "keys must hold 2 pairs, one per hop, but holds 1"), ([(1, 2), (3,)], "each hop needs two keys")],
)
def test_wrong_keys_are_named(keys: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_typed_timed(**{**right(), "keys": keys}, method="labor")
