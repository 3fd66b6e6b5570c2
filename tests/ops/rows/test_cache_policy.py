import random
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphfeed.ops import POLICIES, PolicyState, clear_policy, find_keys, new_policy, policy_bytes, replace_keys
from tests.cache_models import MODELS, ask, distinct

each_policy = pytest.mark.parametrize("policy", POLICIES)


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


@each_policy
@pytest.mark.parametrize(
    ("capacity", "batch_size"), [(1, 1), (2, 7), (9, 1), (10, 7), (10, 1), (11, 7), (64, 1), (150, 7)]
)
def test_a_long_skewed_sequence_gives_the_same(policy: str, capacity: int, batch_size: int) -> None:
    state, model = new_policy(policy, capacity), MODELS[policy](capacity)
    draws = random.Random(capacity)
    for number in range(3000 // batch_size):
        moved = number // 500 * 17  # what is popular changes
        batch = [int(400 ** draws.random()) + moved for _ in range(batch_size)]
        assert request(state, batch) == ask(model, capacity, batch), number


@each_policy
@given(capacity=st.integers(0, 12), batches=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=15))
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


@each_policy
@pytest.mark.parametrize("capacity", [0, 1, 9, 10, 19, 20, 1 << 16])
def test_state_takes_what_is_said(policy: str, capacity: int) -> None:
    state = new_policy(policy, capacity)
    held = sum(array.nbytes for array in state.lists)
    assert policy_bytes(policy, capacity) == held <= policy_bytes(policy, capacity + 1)


def test_state_is_small() -> None:
    assert policy_bytes("sieve", 1 << 16) <= 26 << 16


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"policy must be one of 'sieve', 's3-fifo', 'lru', 'clock', but is 'fifo'"):
        new_policy("fifo", 1)
    with pytest.raises(ValueError, match=r"capacity must lie in 0 .. 1073741824, but is -1"):
        new_policy("lru", -1)
    narrow: Any = torch.tensor([1], dtype=torch.int32)
    with pytest.raises(TypeError, match=r"keys must be torch.int64, but is torch.int32"):
        find_keys(new_policy("lru", 1), narrow)
    with pytest.raises(TypeError, match=r"keys must be torch.int64, but is torch.int32"):
        replace_keys(new_policy("lru", 1), narrow)
