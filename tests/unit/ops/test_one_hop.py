"""One hop picks the edges that the reference picks, on each device; and each by its chance, as the third law says."""

import random
from itertools import combinations, permutations
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK, Method
from tests.kinds import reference
from tests.kinds.chance import check_counts, check_subsets, check_unrelated
from tests.kinds.graphs import (
    FANOUTS,
    ID_DTYPES,
    KEYS,
    Graph,
    equal_columns,
    graphs_and_seeds,
    split,
)  # fmt: skip
from tests.kinds.hops import record, sample_one
from tests.stand_ins.devices import Put, results
from tests.stand_ins.emulated_cuda import Cuda

SHARES = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1])


CASES = [
    ("uniform", torch.int64, None),
    ("uniform", torch.int64, torch.uint8),
    ("uniform", torch.int32, torch.int32),
    ("labor", torch.int64, None),
    ("labor", torch.int64, torch.uint8),
    ("labor", torch.int32, torch.uint8),
]
"""How edges are drawn, and the dtypes of ids and of the types of edges. All types but uint8 become int32."""


@pytest.mark.parametrize(("method", "ids", "type_dtype"), CASES, ids=str)
@given(graphs_and_seeds(), st.tuples(KEYS, KEYS), st.data())
def test_equal_to_the_reference(
    cuda: Cuda,
    method: Method,
    ids: torch.dtype,
    type_dtype: torch.dtype | None,
    given: tuple[Graph, list[int]],
    keys: tuple[int, int],
    data: st.DataObject,
) -> None:
    (graph, seeds), starts, share = given, data.draw(st.sampled_from(ID_DTYPES)), data.draw(SHARES)
    replace, weighted, by_type = (data.draw(st.booleans()) for _ in range(3))
    fanouts = [data.draw(FANOUTS) for _ in range(graph.num_types if by_type and type_dtype else 1)]
    arrays = reference.Graph(graph.indptr, graph.indices, graph.types, graph.units if weighted else None)
    trees = data.draw(st.none() | st.lists(KEYS.map(lambda key: key >> 1), min_size=len(seeds), max_size=len(seeds)))
    expected = [
        reference.pick_edges(
            arrays, [node], fanouts,
            ((keys[0] if tree is None or method == "labor" else ops.fold(keys[0], tree), keys[1]), share),
            method, replace,
        )[0]
        for node, tree in zip(seeds, trees or list[int | None]([None] * len(seeds)), strict=True)
    ]  # fmt: skip

    def sample(put: Put) -> ops.Picks:
        drawing, asked = ops.Drawing(method, replace, share), put(torch.tensor(seeds, dtype=ids))
        own_trees = None if trees is None else put(torch.tensor(trees, dtype=torch.int64))
        hop = ops.OneHop(asked, torch.tensor(fanouts), keys, drawing, trees=own_trees)
        columns = graph.arrays(starts, ids, weighted=weighted, types=type_dtype, put=put)
        return ops.sample_neighbors(columns, hop)

    for picks in results(cuda, sample, each_order=method == "labor"):
        assert picks.offsets.dtype == picks.positions.dtype == torch.int64
        assert split(picks) == expected


@given(st.sampled_from([1, 8, 40]), st.booleans(), st.data())
def test_equal_to_the_reference_for_uneven_weights(power: int, replace: bool, data: st.DataObject) -> None:
    degrees = data.draw(st.lists(st.sampled_from([1, 5, 100, 1000]), min_size=1, max_size=3))
    indptr = reference.running_sum(degrees)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    weights = [chance.random() ** power * chance.choice([0, 1, 1]) for _ in range(indptr[-1])]
    sums = torch.tensor(reference.cumulate_weights(indptr, weights))
    graph, seeds = record(torch.tensor(indptr), cumulative=sums), list(range(len(degrees)))
    for fanout in (1, 20, 60):
        picks = sample_one(graph, torch.tensor(seeds), torch.tensor([fanout]), 1, replace=replace)
        units = reference.weights_to_units(indptr, weights)
        assert split(picks) == reference.pick_edges(
            reference.Graph(indptr, [], units=units), seeds, [fanout], 1, replace=replace
        )


@pytest.mark.parametrize("replace", [False, True])
def test_positions_beyond_32_bits(replace: bool) -> None:
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**33, 2**33, 2**40]
    seeds = [4, 1, 0, 3, 2, 0]
    for fanout in (5, MAX_LOOK_BACK + 10):
        columns = record(torch.tensor(indptr))
        picks = sample_one(columns, torch.tensor(seeds), torch.tensor([fanout]), 3, replace=replace)
        assert split(picks) == reference.pick_edges(reference.Graph(indptr, []), seeds, [fanout], 3, replace=replace)
    assert int(picks.positions.max()) > 2**39
    (whole,) = split(sample_one(columns, torch.tensor([1]), torch.tensor([-1]), 3))
    assert whole == list(range(2**31 - 2, 2**31 + 5))


WEIGHTS = torch.tensor([4.0, 0.0, 1.0, 2.5, 0.5, 0.0])


def sample_alike(degree: int, fanout: int, trials: int, *, replace: bool = False, key: int = 1) -> torch.Tensor:
    """Sample as many nodes with as many neighbours each; return the picks, one node a row."""
    indptr = equal_columns(trials, degree)
    picks = sample_one(record(indptr), torch.arange(trials), torch.tensor([fanout]), key, replace=replace)
    return picks.positions.reshape(trials, -1) - indptr[:-1, None]


def sample_weighted(fanout: int, trials: int, *, replace: bool) -> torch.Tensor:
    indptr = equal_columns(trials, WEIGHTS.numel())
    columns = record(indptr, cumulative=ops.cumulate_weights(indptr, WEIGHTS.repeat(trials)))
    picks = sample_one(columns, torch.arange(trials), torch.tensor([fanout]), 2, replace=replace)
    return picks.positions.reshape(trials, -1) - indptr[:-1, None]


def count_sets(picks: torch.Tensor, size: int) -> torch.Tensor:
    """Count how often each set of picks was drawn, in the order of `combinations`."""
    numbers = {members: number for number, members in enumerate(combinations(range(size), picks.shape[1]))}
    drawn = [numbers[tuple(row)] for row in picks.sort(dim=1).values.tolist()]
    return torch.bincount(torch.tensor(drawn), minlength=len(numbers))


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (10, 9), (60, 49), (200, 5), (300, 120)])
def test_neighbors_and_pairs_are_drawn_evenly(degree: int, fanout: int) -> None:
    check_subsets(sample_alike(degree, fanout, trials=6000), degree)


def test_sets_are_drawn_evenly() -> None:
    picks = sample_alike(6, 3, trials=6000)
    check_counts(count_sets(picks, 6), torch.ones(comb(6, 3)))


def test_one_node_gets_even_draws_over_the_batches() -> None:
    columns, node, fanouts = record(equal_columns(4, 6)), torch.tensor([2]), torch.tensor([3])
    keys = [ops.Key(seed=0, epoch=0, index=index).at(0) for index in range(3000)]
    picks = [sample_one(columns, node, fanouts, key).positions for key in keys]
    check_subsets(torch.stack(picks) - 2 * 6, 6)


@pytest.mark.parametrize(("degree", "fanout"), [(10, 4), (200, 60)])
def test_with_replacement_each_draw_is_even(degree: int, fanout: int) -> None:
    picks = sample_alike(degree, fanout, trials=6000, replace=True)
    check_counts(torch.bincount(picks.flatten(), minlength=degree), torch.ones(degree))
    check_unrelated(picks[:, 0] * 2 // degree, picks[:, 1] * 2 // degree, 2)
    check_unrelated(picks[:, ::2].flatten() * 2 // degree, picks[:, 1::2].flatten() * 2 // degree, 2)


@pytest.mark.parametrize("fanout", [3, 60])
def test_with_replacement_each_draw_follows_the_weights(fanout: int) -> None:
    picks = sample_weighted(fanout, trials=6000, replace=True)
    for draw in (0, fanout - 1):
        check_counts(torch.bincount(picks[:, draw], minlength=WEIGHTS.numel()), WEIGHTS)
    counts = torch.bincount(picks[:, 0] * WEIGHTS.numel() + picks[:, 1], minlength=WEIGHTS.numel() ** 2)
    check_counts(counts, WEIGHTS[:, None] * WEIGHTS)


def chance_of_sets(fanout: int) -> torch.Tensor:
    """Return how likely each set is if edges are drawn one after the other by weight, summed over all orders."""
    weights = WEIGHTS.tolist()
    chances = dict.fromkeys(combinations(range(len(weights)), fanout), 0.0)
    for order in permutations(range(len(weights)), fanout):
        chance, left = 1.0, sum(weights)
        for edge in order:
            chance *= weights[edge] / left if left else 0
            left -= weights[edge]
        chances[tuple(sorted(order))] += chance
    return torch.tensor(list(chances.values()))


@pytest.mark.parametrize("fanout", [1, 3])
def test_sets_follow_the_weights(fanout: int) -> None:
    picks = sample_weighted(fanout, trials=20000, replace=False)
    chances = chance_of_sets(fanout)
    assert abs(float(chances.sum()) - 1) < 1e-6
    check_counts(count_sets(picks, WEIGHTS.numel()), chances)


@pytest.mark.parametrize(("fanout", "replace"), [(1, False), (3, False), (3, True)])
def test_each_edge_type_is_drawn_evenly_and_apart_from_the_others(fanout: int, replace: bool) -> None:
    trials, degree = 6000, 8
    indptr = equal_columns(trials, 3 * degree)
    types = torch.arange(3).repeat_interleave(degree).repeat(trials)
    fanouts = torch.tensor([fanout, 0, fanout])
    graph = record(indptr, types=types, num_types=3)
    picks = sample_one(graph, torch.arange(trials), fanouts, 4, replace=replace)
    columns = picks.positions.reshape(trials, 2 * fanout) - indptr[:-1, None]
    first, last = columns[:, :fanout], columns[:, fanout:] - 2 * degree
    for part in (first, last):
        if replace:
            check_counts(torch.bincount(part.flatten(), minlength=degree), torch.ones(degree))
        else:
            check_subsets(part, degree)
    if fanout == 1:
        check_unrelated(first[:, 0], last[:, 0], degree)


def test_the_hops_batches_epochs_and_nodes_are_unrelated() -> None:
    def picks_of(seed: int, epoch: int, index: int, hop: int) -> torch.Tensor:
        return sample_alike(8, 1, trials=6000, key=ops.Key(seed, epoch, index).at(1, hop))[:, 0]

    picks = picks_of(0, 1, 2, 0)
    for other in ((0, 1, 2, 1), (0, 1, 3, 0), (0, 2, 2, 0), (1, 1, 2, 0), (0, 2, 1, 0)):
        check_unrelated(picks, picks_of(*other), 8)
    check_unrelated(picks[::2], picks[1::2], 8)
