"""Which rows are kept: by the policies of caches, in the sets of a GPU's cache, and by a plan of what comes next."""

import random
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphfeed.ops import (
    BYTES_PER_PLACE,
    POLICIES,
    CacheSets,
    PolicyState,
    RowPlan,
    clear_policy,
    clear_sets,
    find_in_sets,
    find_keys,
    find_slots,
    new_policy,
    new_row_plan,
    new_sets,
    note_rows,
    place_rows,
    policy_bytes,
    replace_in_sets,
    replace_keys,
    row_plan_bytes,
)
from graphfeed.ops.rows import next_window
from graphfeed.ops.rows.cache_sets import set_shape
from tests.kinds.cache_models import Sets, Sieve, ask, distinct
from tests.stand_ins.devices import Device


def request(state: PolicyState, batch: list[int]) -> list[int]:
    """Look a batch up, let in what was missing, and return the missing positions."""
    missing = find_keys(state, torch.tensor(batch, dtype=torch.int64)).missing_index.tolist()
    replace_keys(state, torch.tensor(distinct(batch[place] for place in missing), dtype=torch.int64))
    return missing


@given(
    policy=st.sampled_from(POLICIES),
    capacity=st.integers(0, 25),
    batches=st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=40),
)
@example(policy="sieve", capacity=1, batches=[[key % 3] for key in range(30)])
@example(policy="lru", capacity=3, batches=[list(range(40))] * 3)
def test_each_policy_hits_and_misses_as_sieve_does(policy: str, capacity: int, batches: list[list[int]]) -> None:
    state, model = new_policy(policy, capacity), Sieve(capacity)
    for batch in batches:
        assert request(state, batch) == ask(model, capacity, batch)


SKEWED = [(1, 1), (9, 7), (64, 1)]
LONGER = [(2, 7), (9, 1), (10, 7), (10, 1), (11, 7), (150, 7)]


@pytest.mark.parametrize("sizes", [SKEWED, pytest.param(LONGER, marks=pytest.mark.thorough)])
def test_a_long_skewed_sequence_gives_the_same(sizes: list[tuple[int, int]]) -> None:
    for capacity, batch_size in sizes:
        state, model = new_policy("sieve", capacity), Sieve(capacity)
        draws = random.Random(capacity)
        for number in range(3000 // batch_size):
            moved = number // 500 * 17  # what is popular changes
            batch = [int(400 ** draws.random()) + moved for _ in range(batch_size)]
            assert request(state, batch) == ask(model, capacity, batch), (capacity, batch_size, number)


@given(
    capacity=st.integers(0, 12),
    batches=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=15),
)
def test_a_slot_has_the_key_that_was_last_given_it(capacity: int, batches: list[list[int]]) -> None:
    state = new_policy("sieve", capacity)
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


def test_what_does_not_fit_passes_by() -> None:
    state = new_policy("sieve", 3)
    assert (replace_keys(state, torch.arange(10)) >= 0).sum() == 3
    nothing = new_policy("sieve", 0)
    assert replace_keys(nothing, torch.arange(4)).tolist() == [-1] * 4
    assert find_keys(nothing, torch.arange(4)).missing_index.tolist() == [0, 1, 2, 3]


def test_a_key_that_is_there_keeps_its_slot() -> None:
    state = new_policy("sieve", 4)
    first = replace_keys(state, torch.tensor([7, 8]))
    assert replace_keys(state, torch.tensor([8, 7, 8])).tolist() == first[[1, 0, 1]].tolist()


def test_large_keys_are_kept_apart() -> None:
    keys = torch.tensor([0, 2**31, 2**32, 2**48, 2**62, 2**63 - 1])
    state = new_policy("sieve", 20)
    slots = replace_keys(state, keys)
    assert len(set(slots.tolist())) == 6
    assert find_keys(state, keys).hit_slots.tolist() == slots.tolist()


def test_cleared_is_as_new() -> None:
    used, new = new_policy("sieve", 5), new_policy("sieve", 5)
    for number in range(20):
        request(used, [number, number % 4])
    clear_policy(used)
    for number in range(30):
        batch = [number % 7, number % 3]
        assert request(used, batch) == request(new, batch)


def test_state_takes_what_is_said_and_little() -> None:
    for capacity in (0, 1, 9, 10, 19, 20, 1 << 16):
        held = sum(array.nbytes for array in new_policy("sieve", capacity).lists)
        assert policy_bytes(capacity) == held <= policy_bytes(capacity + 1), capacity
    assert policy_bytes(1 << 16) <= 26 << 16


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


ROWS = 12

MINIBATCHES = st.lists(st.integers(0, ROWS - 1), max_size=5)
WINDOWS = st.lists(st.lists(MINIBATCHES, max_size=3), max_size=6)
SINGLES = st.lists(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=6), min_size=1, max_size=8)


def check(plan: RowPlan) -> set[int]:
    """Return the rows in memory, each of which has a slot of its own."""
    held = [row for row in range(ROWS) if plan.slots[row] >= 0]
    assert all(plan.rows[plan.slots[row]] == row for row in held)
    assert (plan.rows >= 0).sum() == len(held)
    bits = [int(array[0]) if array.size else 0 for array in (plan.lacking, plan.waiting)]
    assert bits[0].bit_count() == plan.num_lacking[0]
    assert bits[1].bit_count() == plan.num_waiting[0]
    assert bits[0] & bits[1] == 0
    assert {row for row in range(ROWS) if plan.slots[row] < -1} == {
        row for row in range(ROWS) if (bits[0] | bits[1]) >> row & 1
    }
    return set(held)


class Event(NamedTuple):
    """An event of a plan: rows were read, or a mini-batch was used."""

    read: list[int]
    used: list[int] | None


def run(windows: list[list[list[int]]], num_slots: int) -> list[Event]:
    """Note windows, and place their rows after each mini-batch that is used of the window before."""
    plan, events, numbers = new_row_plan(ROWS, num_slots), list[Event](), [0, 0]
    used = noted = 0
    before: list[list[int]] = []

    def place() -> None:
        nonlocal plan
        held = check(plan)
        rows, slots = place_rows(plan, used)
        assert rows.tolist() == sorted(rows.tolist())
        assert not held & set(rows.tolist())
        assert torch.equal(find_slots(plan, rows).long(), slots)
        assert len(set(slots.tolist())) == len(slots)
        check(plan)
        events.append(Event(rows.tolist(), None))

    for window in [*windows, []]:
        place()
        for ids in window:
            held = check(plan)
            noted_rows = note_rows(plan, torch.tensor(ids, dtype=torch.int64), noted, numbers[1], numbers[0])
            noted += 1
            assert noted_rows.kept <= min(noted_rows.rows, len(held & set(ids)))
            check(plan)
        plan = next_window(plan, numbers[1])
        numbers = [numbers[1], noted]
        place()
        for ids in before:
            events.append(Event([], [row for row in ids if row in check(plan)]))
            used += 1
            place()
        before = window
    return events


@given(windows=WINDOWS, num_slots=st.integers(0, ROWS + 1))
def test_slots_are_those_of_rows_and_rows_those_of_slots(windows: list[list[list[int]]], num_slots: int) -> None:
    run(windows, num_slots)


@given(windows=WINDOWS)
def test_each_row_is_read_once_if_all_have_room(windows: list[list[list[int]]]) -> None:
    read = [row for event in run(windows, ROWS) for row in event.read]
    assert sorted(read) == sorted({row for window in windows for ids in window for row in ids})


@given(windows=WINDOWS)
def test_rows_are_there_when_they_are_used_if_windows_fit(windows: list[list[list[int]]]) -> None:
    # As many slots as a window needs, with those of the next that are in memory already.
    sizes = [len({row for ids in [*one, *other] for row in ids}) for one, other in pairwise([*windows, []])]
    events = run(windows, max(sizes, default=0))
    used = [event.used for event in events if event.used is not None]
    assert used == [ids for window in windows for ids in window]


def fewest_reads(windows: list[set[int]], num_slots: int) -> int:
    """Return what the slow plan reads that knows all and drops what is needed last."""
    held, reads = set[int](), 0
    for number, window in enumerate(windows):
        reads += len(window - held)
        held |= window

        def next_use(row: int, following: list[set[int]] = windows[number + 1 :]) -> int:
            return next((later for later, other in enumerate(following) if row in other), ROWS)

        stays = window | (windows[number + 1] & held if number + 1 < len(windows) else set())
        for row in sorted(held - stays, key=next_use, reverse=True)[: max(0, len(held) - num_slots)]:
            held.remove(row)
    return reads


@given(windows=SINGLES)
def test_no_plan_reads_fewer_rows_for_what_is_known(windows: list[list[int]]) -> None:
    # The third window is not known when the first is placed, but nothing has to leave before it is.
    windows = windows[:3]
    sets = [set(ids) for ids in windows]
    num_slots = max(len(one | other) for one, other in pairwise([set[int](), *sets]))
    read = sum(len(event.read) for event in run([[ids] for ids in windows], num_slots))
    assert read == fewest_reads(sets, num_slots)


def test_rows_that_were_met_often_stay() -> None:
    plan = new_row_plan(ROWS, 3)
    for number, ids in enumerate([[1, 1, 2], [1, 3], [4], [5]]):
        note_rows(plan, torch.tensor(ids), number, number, number)
        plan = next_window(plan, number)
        place_rows(plan, number)
    assert find_slots(plan, torch.tensor([1, 2, 3])).tolist()[0] >= 0
    assert (find_slots(plan, torch.arange(ROWS)) >= 0).sum() == 3


def test_a_row_that_has_to_wait_is_read_for_the_next_window_that_needs_it() -> None:
    plan = new_row_plan(ROWS, 1)
    note_rows(plan, torch.tensor([1, 2, 3]), 0, 0, 0)
    plan = next_window(plan, 0)
    assert place_rows(plan, 0)[0].tolist() == [1]
    assert place_rows(plan, 0)[0].tolist() == []
    assert note_rows(plan, torch.tensor([2]), 1, 1, 0) == (1, 0)
    plan = next_window(plan, 1)
    assert find_slots(plan, torch.tensor([1, 2, 3])).tolist() == [0, -1, -1]
    assert place_rows(plan, 1)[0].tolist() == [2]


def test_counts_stop_at_255() -> None:
    plan = new_row_plan(ROWS, 1)
    note_rows(plan, torch.zeros(300, dtype=torch.int64), 0, 0, 0)
    assert plan.met.tolist() == [255] + [0] * (ROWS - 1)


@given(num_rows=st.integers(0, 300), num_slots=st.integers(0, 50))
def test_the_memory_of_a_plan_is_known(num_rows: int, num_slots: int) -> None:
    plan = new_row_plan(num_rows, num_slots)
    assert sum(array.nbytes for array in plan) == row_plan_bytes(num_rows, num_slots)
