"""The policies of caches on the CPU against those of the papers, and the sets of a GPU's cache against a slow model."""

import random
from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphfeed.ops import POLICIES, PolicyState, clear_policy, find_keys, new_policy, policy_bytes, replace_keys
from graphfeed.ops.rows.cache_sets import (
    BYTES_PER_PLACE,
    CacheSets,
    clear_sets,
    find_in_sets,
    new_sets,
    replace_in_sets,
    set_shape,
)
from tests.cache_models import MODELS, Sets, ask, distinct
from tests.ops.devices import Device

each_policy = pytest.mark.parametrize("policy", POLICIES)
POLICY = st.sampled_from(list(POLICIES))


def request(state: PolicyState, batch: list[int]) -> list[int]:
    """Look a batch up, let in what was missing, and return the missing positions."""
    missing = find_keys(state, torch.tensor(batch, dtype=torch.int64)).missing_index.tolist()
    replace_keys(state, torch.tensor(distinct(batch[place] for place in missing), dtype=torch.int64))
    return missing


@each_policy
@given(
    capacity=st.integers(0, 25),
    batches=st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=40),
)
@example(capacity=1, batches=[[key % 3] for key in range(30)])
@example(capacity=3, batches=[list(range(40))] * 3)
def test_hits_and_misses_are_those_of_the_papers(policy: str, capacity: int, batches: list[list[int]]) -> None:
    state, model = new_policy(policy, capacity), MODELS[policy](capacity)
    for batch in batches:
        assert request(state, batch) == ask(model, capacity, batch)


SKEWED = [(1, 1), (9, 7), (64, 1)]
LONGER = [(2, 7), (9, 1), (10, 7), (10, 1), (11, 7), (150, 7)]


@pytest.mark.parametrize("sizes", [SKEWED, pytest.param(LONGER, marks=pytest.mark.thorough)])
def test_a_long_skewed_sequence_gives_the_same(sizes: list[tuple[int, int]]) -> None:
    for policy, (capacity, batch_size) in product(("sieve", "lru"), sizes):
        state, model = new_policy(policy, capacity), MODELS[policy](capacity)
        draws = random.Random(capacity)
        for number in range(3000 // batch_size):
            moved = number // 500 * 17  # what is popular changes
            batch = [int(400 ** draws.random()) + moved for _ in range(batch_size)]
            assert request(state, batch) == ask(model, capacity, batch), (policy, capacity, batch_size, number)


@given(
    policy=POLICY,
    capacity=st.integers(0, 12),
    batches=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=15),
)
def test_a_slot_has_the_key_that_was_last_given_it(policy: str, capacity: int, batches: list[list[int]]) -> None:
    state = new_policy(policy, capacity)
    values = [-1] * capacity
    for batch in batches:
        found = find_keys(state, torch.tensor(batch, dtype=torch.int64))
        hits = [batch[place] for place in found.hit_index.tolist()]
        assert [values[slot] for slot in found.hit_slots.tolist()] == hits
        assert sorted(found.hit_index.tolist() + found.missing_index.tolist()) == list(range(len(batch)))
        for key, slot in zip(batch, replace_keys(state, torch.tensor(batch, dtype=torch.int64)).tolist(), strict=True):
            assert -1 <= slot < capacity
            if slot >= 0:
                values[slot] = key


@each_policy
def test_what_does_not_fit_passes_by(policy: str) -> None:
    state = new_policy(policy, 3)
    assert (replace_keys(state, torch.arange(10)) >= 0).sum() == 3
    nothing = new_policy(policy, 0)
    assert replace_keys(nothing, torch.arange(4)).tolist() == [-1] * 4
    assert find_keys(nothing, torch.arange(4)).missing_index.tolist() == [0, 1, 2, 3]


@each_policy
def test_a_key_that_is_there_keeps_its_slot(policy: str) -> None:
    state = new_policy(policy, 4)
    first = replace_keys(state, torch.tensor([7, 8]))
    assert replace_keys(state, torch.tensor([8, 7, 8])).tolist() == first[[1, 0, 1]].tolist()


@each_policy
def test_large_keys_are_kept_apart(policy: str) -> None:
    keys = torch.tensor([0, 2**31, 2**32, 2**48, 2**62, 2**63 - 1])
    state = new_policy(policy, 20)
    slots = replace_keys(state, keys)
    assert len(set(slots.tolist())) == 6
    assert find_keys(state, keys).hit_slots.tolist() == slots.tolist()


@each_policy
def test_cleared_is_as_new(policy: str) -> None:
    used, new = new_policy(policy, 5), new_policy(policy, 5)
    for number in range(20):
        request(used, [number, number % 4])
    clear_policy(used)
    for number in range(30):
        batch = [number % 7, number % 3]
        assert request(used, batch) == request(new, batch)


def test_lru_fails_where_sieve_does_not() -> None:
    """A scan of keys that come once pushes the popular ones out of LRU."""
    misses = {}
    for policy in POLICIES:
        state = new_policy(policy, 100)
        draws = random.Random(0)
        misses[policy] = sum(len(request(state, [draws.randrange(80), 1000 + number])) for number in range(5000))
    assert misses["sieve"] < misses["lru"]


def test_state_takes_what_is_said_and_little() -> None:
    for policy, capacity in product(POLICIES, (0, 1, 9, 10, 19, 20, 1 << 16)):
        held = sum(array.nbytes for array in new_policy(policy, capacity).lists)
        assert policy_bytes(policy, capacity) == held <= policy_bytes(policy, capacity + 1), (policy, capacity)
    assert policy_bytes("sieve", 1 << 16) <= 26 << 16


def ids(keys: list[int]) -> torch.Tensor:
    return torch.tensor(keys, dtype=torch.int64)


@given(
    capacity=st.sampled_from([0, 1, 3, 31, 32, 33, 70, 128]),
    batches=st.lists(st.lists(st.integers(0, 300), max_size=60), max_size=12),
)
def test_slots_in_sets_are_those_of_the_slow_version(device: Device, capacity: int, batches: list[list[int]]) -> None:
    for order in device.each_order():
        made, model = new_sets(capacity), Sets(*set_shape(capacity))
        with order, device.running():
            sets = CacheSets(device.put(made.keys), device.put(made.uses))
            for request, batch in enumerate(batches):
                slots = find_in_sets(sets, device.put(ids(batch)), request).tolist()
                assert slots == [model.find(key, request) for key in batch]
                missing = distinct(key for key, slot in zip(batch, slots, strict=True) if slot < 0)
                given_slots = replace_in_sets(sets, device.put(ids(missing)), request).tolist()
                assert given_slots == [model.insert(key, request) for key in missing]
                taken = [slot for slot in given_slots if slot >= 0]
                assert len(set(taken)) == len(taken)


def test_a_request_that_comes_late_takes_nothing_from_a_later_one() -> None:
    sets = new_sets(1)
    assert find_in_sets(sets, ids([5]), 0).tolist() == [-1]
    assert replace_in_sets(sets, ids([6]), 1).tolist() == [0]
    assert replace_in_sets(sets, ids([5]), 0).tolist() == [-1]
    assert replace_in_sets(sets, ids([6]), 0).tolist() == [0]
    assert replace_in_sets(sets, ids([7]), 1).tolist() == [-1]
    assert replace_in_sets(sets, ids([7]), 2).tolist() == [0]


def test_sets_are_equal_and_no_larger_than_a_warp() -> None:
    for capacity in (0, 1, 31, 32, 33, 63, 64, 65, 1000):
        made = new_sets(capacity)
        sets, ways = made.keys.shape
        assert made.uses.shape == (sets, ways)
        assert ways <= 32
        assert capacity - 32 < sets * ways <= capacity
        assert sets * ways >= 0.9 * capacity
        assert made.keys.nbytes + made.uses.nbytes == BYTES_PER_PLACE * sets * ways


def test_cleared_sets_are_empty() -> None:
    sets = new_sets(5)
    replace_in_sets(sets, ids([3, 4]), 7)
    clear_sets(sets)
    assert find_in_sets(sets, ids([3, 4]), 8).tolist() == [-1, -1]
    assert replace_in_sets(sets, ids([9]), 0).tolist() == [0]


def test_keys_spread_over_the_sets() -> None:
    sets = new_sets(3200)
    slots = replace_in_sets(sets, torch.arange(1600) * 64, 0)
    assert (slots >= 0).all()
    full = (sets.keys >= 0).sum(1)
    assert 0 < int(full.min()) <= int(full.max()) < 32
