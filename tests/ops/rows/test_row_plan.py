from itertools import pairwise
from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import find_slots, new_row_plan, note_rows, place_rows, row_plan_bytes
from graphfeed.ops.cpu.rows.row_plan import RowPlan
from graphfeed.ops.rows import begin_window

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
    """What happened to a plan: rows that were read, or a mini-batch that was used."""

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
        plan = begin_window(plan, numbers[1])
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
        plan = begin_window(plan, number)
        place_rows(plan, number)
    assert find_slots(plan, torch.tensor([1, 2, 3])).tolist()[0] >= 0
    assert (find_slots(plan, torch.arange(ROWS)) >= 0).sum() == 3


def test_a_row_that_has_to_wait_is_read_for_the_next_window_that_needs_it() -> None:
    plan = new_row_plan(ROWS, 1)
    note_rows(plan, torch.tensor([1, 2, 3]), 0, 0, 0)
    plan = begin_window(plan, 0)
    assert place_rows(plan, 0)[0].tolist() == [1]
    assert place_rows(plan, 0)[0].tolist() == []
    assert note_rows(plan, torch.tensor([2]), 1, 1, 0) == (1, 0)
    plan = begin_window(plan, 1)
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
