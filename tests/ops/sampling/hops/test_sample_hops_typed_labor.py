from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import ID_DTYPES
from tests.ops.hops import sample_typed
from tests.ops.sampling.hops.test_sample_hops_typed import (
    FIRST_EDGES,
    HOPS,
    SEEDS,
    Typed,
    as_lists,
    problems,
    random_graph,
)

PAIRS = [(1, 2), (3, 4)]


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(problems(), st.booleans(), st.booleans(), st.sampled_from([0, 1 << 62, 3 << 62]), st.sampled_from([1, 1 << 22]))
def test_equal_to_the_reference(
    dtype: torch.dtype,
    problem: tuple[Typed, list[list[int]], list[tuple[list[int], int]]],
    replace: bool,
    weighted: bool,
    share: int,
    first_edges: int,
) -> None:
    typed, seeds, hops = problem
    draws = [((key, key ^ 5), share) for _, key in hops]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*FIRST_EDGES, first_edges)
        found = sample_typed(
            typed.arrays(dtype, weighted=weighted),
            [torch.tensor(part, dtype=dtype) for part in seeds],
            [torch.tensor(fanouts) for fanouts, _ in hops],
            [keys for keys, _ in draws],
            method="labor",
            switch_threshold=share,
            replace=replace,
        )
    units = reference.weights_to_units(typed.indptr, typed.weights) if weighted else None
    steps = [(fanouts, own) for (fanouts, _), own in zip(hops, draws, strict=True)]
    assert as_lists(found, typed) == reference.typed_sample_hops(typed.graph, typed.kinds, seeds, steps, replace, units)


def test_columns_longer_than_a_fan_out_share_their_neighbours() -> None:
    graph = random_graph()

    def count(hops: Sequence[ops.TypedHop] | None) -> int:
        assert hops is not None
        return sum(map(len, hops[0].rows))

    uniform = ops.typed_sample_hops(graph, SEEDS, HOPS[:1], [1])
    assert count(sample_typed(graph, SEEDS, HOPS[:1], [(1, 1)], method="labor")) < count(uniform)


@pytest.mark.parametrize(
    ("keys", "message"),
    [(PAIRS[:1], "keys must hold 2 pairs, one per hop, but holds 1"), ([(1, 2), (3,)], "each hop needs two keys")],
)
def test_wrong_keys_are_named(keys: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_typed(random_graph(), SEEDS, HOPS, keys, method="labor")
