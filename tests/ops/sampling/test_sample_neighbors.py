import random
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK
from tests import reference
from tests.ops.graphs import (
    FANOUTS,
    ID_DTYPES,
    KEYS,
    TYPE_DTYPES,
    Graph,
    graphs_and_seeds,
    split,
)  # fmt: skip
from tests.ops.hops import sample_one

INDPTR = torch.tensor([0, 3, 3, 8])


@pytest.mark.parametrize("indptr_dtype", ID_DTYPES)
@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(graphs_and_seeds(), FANOUTS, KEYS, st.booleans(), st.booleans())
def test_equal_to_the_reference(
    indptr_dtype: torch.dtype,
    dtype: torch.dtype,
    given: tuple[Graph, list[int]],
    fanout: int,
    key: int,
    replace: bool,
    weighted: bool,
) -> None:
    graph, seeds = given
    columns = graph.arrays(indptr_dtype, dtype, weighted=weighted)
    picks = sample_one(columns, torch.tensor(seeds, dtype=dtype), torch.tensor([fanout]), key, replace=replace)
    units = graph.units if weighted else None
    assert picks.offsets.dtype == picks.positions.dtype == torch.int64
    assert split(picks) == reference.sample_neighbors(graph.indptr, seeds, [fanout], key, replace, units)


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


@pytest.mark.parametrize("type_dtype", TYPE_DTYPES)
@given(graphs_and_seeds(), st.data(), KEYS, st.booleans(), st.booleans())
def test_equal_to_the_reference_by_type(
    type_dtype: torch.dtype,
    given: tuple[Graph, list[int]],
    data: st.DataObject,
    key: int,
    replace: bool,
    weighted: bool,
) -> None:
    graph, seeds = given
    fanouts = data.draw(st.lists(FANOUTS, min_size=graph.num_types, max_size=graph.num_types))
    columns = graph.arrays(weighted=weighted, types=type_dtype)
    picks = sample_one(columns, torch.tensor(seeds).long(), torch.tensor(fanouts), key, replace=replace)
    units = graph.units if weighted else None
    assert split(picks) == reference.sample_neighbors(graph.indptr, seeds, fanouts, key, replace, units, graph.types)


@given(graphs_and_seeds(), FANOUTS, KEYS)
def test_without_replacement_edges_are_distinct_and_as_many_as_there_may_be(
    given: tuple[Graph, list[int]], fanout: int, key: int
) -> None:
    graph, seeds = given
    picks = sample_one(graph.arrays(), torch.tensor(seeds).long(), torch.tensor([fanout]), key)
    for node, column in zip(seeds, split(picks), strict=True):
        low, high = graph.indptr[node : node + 2]
        assert len(column) == (high - low if fanout < 0 else min(fanout, high - low))
        assert len(set(column)) == len(column)
        assert set(column) <= set(range(low, high))


@given(graphs_and_seeds(), FANOUTS, KEYS, st.booleans())
def test_what_a_node_gets_depends_on_no_other_node(
    given: tuple[Graph, list[int]], fanout: int, key: int, replace: bool
) -> None:
    graph, seeds = given
    columns, fanouts = graph.arrays(), torch.tensor([fanout])
    picks = sample_one(columns, torch.tensor(seeds).long(), fanouts, key, replace=replace)
    alone = [sample_one(columns, torch.tensor([node]), fanouts, key, replace=replace) for node in seeds]
    assert split(picks) == [split(one)[0] for one in alone]


def test_results_are_those_of_every_release() -> None:
    indptr, seeds = torch.tensor([0, 100, 400]), torch.tensor([0, 1])
    key = ops.Key(seed=1, epoch=2, index=3).at(stage=0, hop=1)
    picks = sample_one(ops.StaticGraph(indptr), seeds, torch.tensor([4]), key)
    assert picks.positions.tolist() == [13, 70, 78, 21, 120, 147, 331, 106]
    graph = ops.StaticGraph(indptr, cumulative=ops.cumulate_weights(indptr, torch.arange(400) % 7 / 2))
    weighted = sample_one(graph, seeds, torch.tensor([4]), key)
    assert weighted.positions.tolist() == [13, 23, 73, 80, 104, 120, 146, 333]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("power", [1, 8, 40])
@given(st.data())
def test_equal_to_the_reference_for_uneven_weights(power: int, replace: bool, data: st.DataObject) -> None:
    degrees = data.draw(st.lists(st.sampled_from([1, 5, 100, 1000]), min_size=1, max_size=3))
    indptr = reference.running_sum(degrees)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    weights = [chance.random() ** power * chance.choice([0, 1, 1]) for _ in range(indptr[-1])]
    columns = ops.StaticGraph(
        torch.tensor(indptr), cumulative=torch.tensor(reference.cumulate_weights(indptr, weights))
    )
    units = reference.weights_to_units(indptr, weights)
    seeds = list(range(len(degrees)))
    for fanout in (1, 20, 60):
        picks = sample_one(columns, torch.tensor(seeds), torch.tensor([fanout]), 1, replace=replace)
        assert split(picks) == reference.sample_neighbors(indptr, seeds, [fanout], 1, replace, units)


@pytest.mark.parametrize("replace", [False, True])
def test_positions_beyond_32_bits(replace: bool) -> None:
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**33, 2**33, 2**40]
    seeds = [4, 1, 0, 3, 2, 0]
    for fanout in (2, 5, MAX_LOOK_BACK + 10):
        columns = ops.StaticGraph(torch.tensor(indptr))
        picks = sample_one(columns, torch.tensor(seeds), torch.tensor([fanout]), 3, replace=replace)
        assert split(picks) == reference.sample_neighbors(indptr, seeds, [fanout], 3, replace)
    assert int(picks.positions.max()) > 2**39


def test_all_neighbors_beyond_32_bits() -> None:
    columns = ops.StaticGraph(torch.tensor([0, 2**31 - 2, 2**31 + 5]))
    picks = sample_one(columns, torch.tensor([1]), torch.tensor([-1]), 3)
    assert picks.positions.tolist() == list(range(2**31 - 2, 2**31 + 5))


def test_nothing_to_sample() -> None:
    none = torch.empty(0, dtype=torch.int64)
    for indptr, seeds in (([0], none), ([0, 0], torch.tensor([0, 0])), ([0, 2], none)):
        for replace in (False, True):
            picks = sample_one(ops.StaticGraph(torch.tensor(indptr)), seeds, torch.tensor([2]), 0, replace=replace)
            assert picks.offsets.tolist() == [0] * (len(seeds) + 1)
            assert picks.positions.tolist() == []


def test_arguments_are_left_as_they_are() -> None:
    indptr, seeds, fanouts = INDPTR.clone(), torch.tensor([2, 0]), torch.tensor([2])
    sample_one(ops.StaticGraph(indptr), seeds, fanouts, 0)
    assert indptr.equal(INDPTR)
    assert seeds.tolist() == [2, 0]
    assert fanouts.tolist() == [2]


@pytest.mark.parametrize("fanout", [1_000_000, 2**40])
def test_a_fan_out_that_no_node_reaches_takes_all(fanout: int) -> None:
    picks = sample_one(ops.StaticGraph(INDPTR), torch.tensor([2, 0]), torch.tensor([fanout]), 0)
    assert split(picks) == [[3, 4, 5, 6, 7], [0, 1, 2]]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"indptr": [0, 3]}, TypeError, "indptr must be a torch.Tensor, but is a list"),
        ({"indptr": torch.tensor([0.0, 3.0])}, TypeError, "indptr must be .*int32 or .*int64, but is torch.float32"),
        ({"indptr": torch.zeros(2, 2)}, ValueError, r"indptr must have 1 dimension, but has shape \(2, 2\)"),
        ({"seeds": [0]}, TypeError, "seeds must be a torch.Tensor, but is a list"),
        ({"seeds": torch.tensor([True])}, TypeError, "seeds must be .*, but is torch.bool"),
        ({"seeds": torch.tensor(0)}, ValueError, r"seeds must have 1 dimension, but has shape \(\)"),
        ({"seeds": torch.tensor([0, -1])}, ValueError, r"seeds must lie in 0 .. 2, but holds -1"),
        ({"seeds": torch.tensor([0, 3])}, ValueError, r"seeds must lie in 0 .. 2, but holds 3"),
        ({"fanouts": torch.tensor([1.5])}, TypeError, "fanouts must be .*, but is torch.float32"),
        ({"fanouts": torch.tensor([-2])}, ValueError, "fanouts must be -1 .* or more, but holds -2"),
        ({"fanouts": torch.tensor([], dtype=torch.int64)}, ValueError, "fanouts .* must hold 1 number, .* holds 0"),
        ({"fanouts": torch.tensor([1, 2])}, ValueError, "fanouts of a hop must hold 1 number, .* but holds 2"),
        (
            {"fanouts": torch.tensor([1, 2]), "num_types": 3},
            ValueError,
            r"fanouts of a hop must hold 1 number, or 3 \(one per edge type\), but holds 2",
        ),
        (
            {"fanouts": torch.tensor([1, 2]), "num_types": 2},
            ValueError,
            "fanouts has 2 numbers, one per edge type, but the graph has no edge types",
        ),
        ({"keys": torch.zeros(2, dtype=torch.uint64)}, ValueError, "keys must have 1 values, one per seed, but has 2"),
        ({"keys": torch.zeros(1)}, TypeError, "keys"),
        (
            {
                "keys": torch.zeros(1, dtype=torch.uint64),
                "drawing": ops.Drawing("labor"),
                "indices": torch.zeros(8).long(),
            },
            ValueError,
            "keys must be those of the hop on a GPU and by LABOR, not one per seed",
        ),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    graph, hop = ops.StaticGraph(INDPTR), ops.OneHop(torch.tensor([0]), torch.tensor([1]), (0,))
    ops.sample_neighbors(graph, hop)
    graph = graph._replace(**{name: value for name, value in changed.items() if name in graph._fields})
    hop = hop._replace(**{name: value for name, value in changed.items() if name in hop._fields})
    with pytest.raises(error, match=message):
        ops.sample_neighbors(graph, hop)


def test_times_of_a_graph_and_of_its_seeds_are_given_together() -> None:
    timed, plain = ops.TemporalGraph(INDPTR, torch.arange(8) % 3), ops.StaticGraph(INDPTR)
    for graph, times in ((timed, None), (plain, torch.tensor([1]))):
        with pytest.raises(ValueError, match=r"times of the seeds, hop\.moments, are given together"):
            sample_one(graph, torch.tensor([0]), torch.tensor([1]), 0, times=times)


def test_an_indptr_without_nodes_has_no_seeds() -> None:
    with pytest.raises(ValueError, match=re.escape("seeds must lie in 0 .. -1, but holds 0")):
        sample_one(ops.StaticGraph(torch.tensor([0])), torch.tensor([0]), torch.tensor([1]), 0)
