import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.rows.cache_sets import (
    BYTES_PER_PLACE,
    clear_sets,
    find_in_sets,
    new_sets,
    replace_in_sets,
    set_shape,
)
from tests.cache_models import Sets, distinct


def ids(keys: list[int]) -> torch.Tensor:
    return torch.tensor(keys, dtype=torch.int64)


@given(
    capacity=st.sampled_from([0, 1, 3, 31, 32, 33, 70, 128]),
    batches=st.lists(st.lists(st.integers(0, 300), max_size=60), max_size=12),
)
def test_hits_and_slots_are_those_of_the_slow_version(capacity: int, batches: list[list[int]]) -> None:
    sets, model = new_sets(capacity), Sets(*set_shape(capacity))
    for request, batch in enumerate(batches):
        slots = find_in_sets(sets, ids(batch), request).tolist()
        assert slots == [model.find(key, request) for key in batch]
        missing = distinct(key for key, slot in zip(batch, slots, strict=True) if slot < 0)
        given_slots = replace_in_sets(sets, ids(missing), request).tolist()
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


@pytest.mark.parametrize("capacity", [0, 1, 31, 32, 33, 63, 64, 65, 1000])
def test_sets_are_equal_and_no_larger_than_a_warp(capacity: int) -> None:
    sets, ways = set_shape(capacity)
    assert ways <= 32
    assert capacity - 32 < sets * ways <= capacity
    assert sets * ways >= 0.9 * capacity
    made = new_sets(capacity)
    assert made.keys.shape == made.uses.shape == (sets, ways)
    assert made.keys.nbytes + made.uses.nbytes == BYTES_PER_PLACE * sets * ways


def test_what_is_cleared_is_empty() -> None:
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


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="capacity must be 0 or more, but is -1"):
        new_sets(-1)
    with pytest.raises(TypeError, match=r"keys must be torch.int64, but is torch.int32"):
        find_in_sets(new_sets(1), torch.zeros(1, dtype=torch.int32), 0)
    with pytest.raises(TypeError, match=r"keys must be torch.int64, but is torch.float32"):
        replace_in_sets(new_sets(1), torch.zeros(1), 0)
