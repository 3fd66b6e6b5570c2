from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.graphs import FANOUTS
from tests.ops.hops import sample_all, sample_one
from tests.ops.sampling.test_sample_neighbors_labor import INDICES, INDPTR, KEYS, SHARES


@pytest.mark.parametrize("by_index", [False, True])
@pytest.mark.parametrize("first_edges", [1, 1 << 22])
@given(st.integers(0, 2**32), st.lists(st.tuples(FANOUTS, KEYS), min_size=1, max_size=3), SHARES, st.data())
def test_all_hops_are_single_hops(
    by_index: bool,
    first_edges: int,
    seed: int,
    hops: list[tuple[int, tuple[int, int]]],
    share: int,
    data: st.DataObject,
) -> None:
    replace, weighted = data.draw(st.booleans()), data.draw(st.booleans())
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, 30, (2, 600), generator=generator)
    indptr, indices, _ = ops.coo_to_csc(ends[0], ends[1] ** 2 // 30, 30)
    cumulative = ops.cumulate_weights(indptr, torch.rand(600, generator=generator) - 0.3 > 0) if weighted else None
    seeds = torch.randint(0, 30, (5,), generator=generator)
    options: dict[str, Any] = {"switch_threshold": share, "replace": replace}
    fanouts, keys = [hop[0] for hop in hops], [hop[1] for hop in hops]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("graphfeed.ops.sampling.hops.sample_hops"), "FIRST_EDGES", first_edges)
        patch.setattr(import_module("graphfeed.ops.sampling.high_degree_index"), "MIN_DEGREE", 8)
        patch.setattr(import_module("graphfeed.ops.sampling.high_degree_index"), "MAX_SHARE", 1)
        index = ops.build_high_degree_index(indptr, indices) if by_index else None
        layers = sample_all(
            indptr, indices, seeds, fanouts, keys, "labor", index=index, cumulative=cumulative, **options
        )
    assert layers is not None
    one_hop = ops.StaticGraph(indptr, indices, cumulative)
    for layer, fanout, pair in zip(layers, fanouts, keys, strict=True):
        picks = sample_one(one_hop, seeds, torch.tensor([fanout]), *pair, method="labor", **options)
        relabelled = ops.compact(seeds, indices[picks.positions])
        expected = ops.SampledHop(seeds, relabelled.rows, picks.offsets, relabelled.local, picks.positions)
        assert [part.tolist() for part in layer] == [part.tolist() for part in expected]
        seeds = relabelled.rows


def test_hops_need_keys_and_fanouts_that_are_right() -> None:
    with pytest.raises(ValueError, match="keys must hold 2 pairs"):
        sample_all(INDPTR, INDICES, torch.tensor([0]), [1, 1], [(0, 0)], "labor")
    with pytest.raises(ValueError, match="fanouts must be -1"):
        sample_all(INDPTR, INDICES, torch.tensor([0]), [-2], [(0, 0)], "labor")
