import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import MASK, Key, fold
from graphfeed.ops.random import GOLDEN, bounded, draw, high_bits, mix, variate
from tests.kinds.chance import check_counts, check_unrelated
from tests.kinds.graphs import KEYS

TRIALS = 4096
BUCKETS = 16
PARTS = ["seed", "epoch", "index", "stage", "hop", "node", "number"]


def test_bits_are_those_of_every_release() -> None:
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF, "the first output of SplitMix64 for seed 0"
    assert draw(1, 2, 3) == 0x6837970403BD51A0
    assert draw(1, 2, 3, edge_type=4) == 0x181325C6AEAAC652
    assert high_bits(mix(1), 2) == 0xF9AE7DE2
    assert high_bits(mix(1), 2**40 + 2) == 0x3433D3B7
    assert variate((1, 2), 2**63, 3) == 0x4A078689F124104D
    assert variate((1, 2), 2**63, 4) == 0xF5BA627C474C33BD


def test_mixing_and_high_bits_are_one_to_one_and_the_order_of_parts_matters() -> None:
    assert len({mix(value) for value in range(TRIALS)}) == TRIALS
    assert len({high_bits(mix(5), node) for node in range(TRIALS)}) == TRIALS
    assert len({fold(0), fold(0, 1), fold(0, 1, 2), fold(0, 2, 1), fold(1, 0, 2)}) == 5


@pytest.mark.parametrize("flipped", [[0, 15, 32], pytest.param([*range(3, 32, 3), 40], marks=pytest.mark.thorough)])
def test_each_short_bit_turns_half_of_the_time_with_a_bit_of_the_node(flipped: list[int]) -> None:
    places = [(mix(number), mix(~number) >> 32) for number in range(TRIALS)]
    for place in flipped:
        turned = [high_bits(key, node) ^ high_bits(key, node ^ 1 << place) for key, node in places]
        for bit in range(32):
            count = sum(bits >> bit & 1 for bits in turned)
            assert abs(count - TRIALS / 2) < 5 * (TRIALS / 4) ** 0.5, (place, bit)


def test_high_bits_of_two_nodes_are_unrelated() -> None:
    for apart in (1, 2, 3, 10, 64, 0x30003, 0xA000A, 0x180018, 1 << 31, 1 << 32):
        keys = [mix(number + apart) for number in range(TRIALS)]
        left, right = ([high_bits(key, node) * BUCKETS >> 32 for key in keys] for node in (7, 7 + apart))
        check_unrelated(torch.tensor(left), torch.tensor(right), BUCKETS)


def test_shared_bits_of_keys_that_are_near_are_unrelated() -> None:
    for flipped in (0, 1, 31, 32, 33, 63):
        keys = (5, 0), (5 ^ 1 << flipped, 0)
        for shift in (60, 28):
            left, right = ([variate(own, 0, node) >> shift & 15 for node in range(TRIALS)] for own in keys)
            check_unrelated(torch.tensor(left), torch.tensor(right), 16)
    drawn = [variate((3, 0), 0, node) for node in range(TRIALS)]
    left, right = ([bits >> shift & 15 for bits in drawn] for shift in (60, 28))
    check_unrelated(torch.tensor(left), torch.tensor(right), 16)


@given(KEYS, st.integers(0, 63))
def test_mixing_changes_about_half_of_the_bits(value: int, flipped: int) -> None:
    assert 10 <= (mix(value) ^ mix(value ^ (1 << flipped))).bit_count() <= 54


@given(KEYS, st.integers(1, 2**63))
def test_bounded_draws_keep_their_bound(bits: int, bound: int) -> None:
    assert 0 <= bounded(bits, bound) < bound
    assert (bounded(0, bound), bounded(MASK, bound)) == (0, bound - 1)


def test_large_bounds_are_reached_evenly() -> None:
    bound = 2**33 + 1
    drawn = [bounded(draw(0, node, 0), bound) * BUCKETS // bound for node in range(TRIALS)]
    check_counts(torch.bincount(torch.tensor(drawn), minlength=BUCKETS), torch.ones(BUCKETS))


def test_each_bit_is_set_half_of_the_time() -> None:
    drawn = [draw(Key(0, 0, index).at(0), 0, 0) for index in range(TRIALS)]
    for bit in range(64):
        count = sum(bits >> bit & 1 for bits in drawn)
        assert abs(count - TRIALS / 2) < 5 * (TRIALS / 4) ** 0.5


def draw_at(place: Sequence[int], edge_type: int | None = None) -> int:
    seed, epoch, index, stage, hop, node, number = place
    return bounded(draw(Key(seed, epoch, index).at(stage, hop), node, number, edge_type), BUCKETS)


def random_places() -> list[list[int]]:
    chance = random.Random(0)
    return [[chance.randrange(30) for _ in PARTS] for _ in range(TRIALS)]


@pytest.mark.parametrize("edge_type", [None, pytest.param(0, marks=pytest.mark.thorough)])
def test_a_change_of_any_part_gives_an_unrelated_draw(edge_type: int | None) -> None:
    places = random_places()
    left = torch.tensor([draw_at(place, edge_type) for place in places])
    for part in PARTS:
        changed = [[value + (name == part) for name, value in zip(PARTS, place, strict=True)] for place in places]
        check_unrelated(left, torch.tensor([draw_at(place, edge_type) for place in changed]), BUCKETS)
    for kind in (1, 2):
        check_unrelated(left, torch.tensor([draw_at(place, kind) for place in places]), BUCKETS)


def test_consecutive_nodes_and_draws_fill_the_square() -> None:
    drawn = torch.tensor([[bounded(draw(7, node, number), BUCKETS) for number in range(8)] for node in range(TRIALS)])
    check_unrelated(drawn[:, ::2].flatten(), drawn[:, 1::2].flatten(), BUCKETS)
    check_unrelated(drawn[::2].flatten(), drawn[1::2].flatten(), BUCKETS)
