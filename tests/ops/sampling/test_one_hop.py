"""One hop picks the edges that the reference picks, on each device."""

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK, Method
from tests import reference
from tests.ops.devices import Device, Put, results
from tests.ops.graphs import (
    FANOUTS,
    ID_DTYPES,
    KEYS,
    Graph,
    graphs_and_seeds,
    put_columns,
    split,
)  # fmt: skip
from tests.ops.hops import sample_one

INDPTR = torch.tensor([0, 3, 3, 8])


SHARES = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1])


CASES = [
    ("uniform", torch.int64, None),
    ("uniform", torch.int64, torch.uint8),
    pytest.param("uniform", torch.int64, torch.int16, marks=pytest.mark.slow),
    pytest.param("uniform", torch.int64, torch.int64, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ("uniform", torch.int32, torch.int32),
    ("labor", torch.int64, None),
    ("labor", torch.int64, torch.uint8),
    ("labor", torch.int32, torch.uint8),
]
"""How edges are drawn, and the dtypes of ids and of the types of edges. All types but uint8 become int32."""


@pytest.mark.parametrize(("method", "ids", "type_dtype"), CASES, ids=str)
@given(graphs_and_seeds(), st.tuples(KEYS, KEYS), st.data())
def test_equal_to_the_reference(
    device: Device,
    method: Method,
    ids: torch.dtype,
    type_dtype: torch.dtype | None,
    given: tuple[Graph, list[int]],
    keys: tuple[int, int],
    data: st.DataObject,
) -> None:
    (graph, seeds), starts, share = given, data.draw(st.sampled_from(ID_DTYPES)), data.draw(SHARES)
    replace, weighted, by_type = (data.draw(st.booleans()) for _ in range(3))
    columns = graph.arrays(starts, ids, weighted=weighted, types=type_dtype)
    fanouts = [data.draw(FANOUTS) for _ in range(columns.num_types if by_type else 1)]
    how: Any = replace, graph.units if weighted else None, graph.types if type_dtype and by_type else None
    if method == "labor":
        arrays = graph.indptr, graph.indices
        expected = reference.labor_sample_neighbors(arrays, seeds, fanouts, (keys, share), *how)
    else:
        expected = reference.sample_neighbors(graph.indptr, seeds, fanouts, keys[0], *how)

    def sample(put: Put) -> ops.Picks:
        drawing, asked = ops.Drawing(method, replace, share), put(torch.tensor(seeds, dtype=ids))
        return ops.sample_neighbors(put_columns(put, columns), ops.OneHop(asked, torch.tensor(fanouts), keys, drawing))

    for picks in results(device, sample, each_order=method == "labor"):
        assert picks.offsets.dtype == picks.positions.dtype == torch.int64
        assert split(picks) == expected


@given(graphs_and_seeds(), FANOUTS, st.lists(KEYS, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_seeds_of_several_mini_batches_draw_by_the_keys_of_these(
    given: tuple[Graph, list[int]], fanout: int, keys: list[int], replace: bool, weighted: bool
) -> None:
    graph, seeds = given
    columns, fanouts = graph.arrays(weighted=weighted), torch.tensor([fanout])
    drawing = ops.Drawing("uniform", replace)
    by_seed = torch.tensor([key for key in keys for _ in seeds], dtype=torch.uint64)
    picks = ops.sample_neighbors(columns, ops.OneHop(torch.tensor(seeds * len(keys)).long(), fanouts, by_seed, drawing))
    own = [sample_one(columns, torch.tensor(seeds).long(), fanouts, key, replace=replace) for key in keys]
    assert split(picks) == [column for part in own for column in split(part)]


@given(st.sampled_from([1, 8, 40]), st.booleans(), st.data())
def test_equal_to_the_reference_for_uneven_weights(power: int, replace: bool, data: st.DataObject) -> None:
    degrees = data.draw(st.lists(st.sampled_from([1, 5, 100, 1000]), min_size=1, max_size=3))
    indptr = reference.running_sum(degrees)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    weights = [chance.random() ** power * chance.choice([0, 1, 1]) for _ in range(indptr[-1])]
    sums = torch.tensor(reference.cumulate_weights(indptr, weights))
    graph, seeds = ops.StaticGraph(torch.tensor(indptr), cumulative=sums), list(range(len(degrees)))
    for fanout in (1, 20, 60):
        picks = sample_one(graph, torch.tensor(seeds), torch.tensor([fanout]), 1, replace=replace)
        units = reference.weights_to_units(indptr, weights)
        assert split(picks) == reference.sample_neighbors(indptr, seeds, [fanout], 1, replace, units)


def test_results_are_those_of_every_release() -> None:
    indptr, seeds = torch.tensor([0, 100, 400]), torch.tensor([0, 1])
    key = ops.Key(seed=1, epoch=2, index=3).at(stage=0, hop=1)
    picks = sample_one(ops.StaticGraph(indptr), seeds, torch.tensor([4]), key)
    assert picks.positions.tolist() == [13, 70, 78, 21, 120, 147, 331, 106]
    graph = ops.StaticGraph(indptr, cumulative=ops.cumulate_weights(indptr, torch.arange(400) % 7 / 2))
    weighted = sample_one(graph, seeds, torch.tensor([4]), key)
    assert weighted.positions.tolist() == [13, 23, 73, 80, 104, 120, 146, 333]


@pytest.mark.parametrize("replace", [False, True])
def test_positions_beyond_32_bits(replace: bool) -> None:
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**33, 2**33, 2**40]
    seeds = [4, 1, 0, 3, 2, 0]
    for fanout in (5, MAX_LOOK_BACK + 10):
        columns = ops.StaticGraph(torch.tensor(indptr))
        picks = sample_one(columns, torch.tensor(seeds), torch.tensor([fanout]), 3, replace=replace)
        assert split(picks) == reference.sample_neighbors(indptr, seeds, [fanout], 3, replace)
    assert int(picks.positions.max()) > 2**39
    (whole,) = split(sample_one(columns, torch.tensor([1]), torch.tensor([-1]), 3))
    assert whole == list(range(2**31 - 2, 2**31 + 5))


def test_a_fan_out_that_no_node_reaches_takes_all() -> None:
    for fanout in (1_000_000, 2**40):
        picks = sample_one(ops.StaticGraph(INDPTR), torch.tensor([2, 0]), torch.tensor([fanout]), 0)
        assert split(picks) == [[3, 4, 5, 6, 7], [0, 1, 2]]


def test_picks_stay_as_they_are_while_others_are_made() -> None:
    graph, fanouts = ops.StaticGraph(INDPTR), torch.tensor([-1])
    picks = sample_one(graph, torch.tensor([0]), fanouts, 5)
    sample_one(graph, torch.tensor([2]), fanouts, 5)
    assert split(picks) == [[0, 1, 2]]
