from functools import cache
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import find_slots, new_row_plan, note_rows, place_rows, row_plan_bytes

ROWS = 12


def windows_of(least: int = 0) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(0, ROWS - 1), min_size=least, max_size=6), min_size=1, max_size=8)


class Slow:
    """The same plan, by sets: what is in memory, and how often each row was met."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.held: set[int] = set()
        self.met = [0] * ROWS

    def place(self, window: list[int], following: set[int]) -> set[int]:
        """Return what is read for a window."""
        for row in window:
            self.met[row] += 1
        lacking = set(window) - self.held
        leaving = sorted(self.held - set(window) - following, key=lambda row: self.met[row])
        while leaving and len(self.held) + len(lacking) > self.num_slots:
            self.held.remove(leaving.pop(0))
        read = set(sorted(lacking)[: self.num_slots - len(self.held)])
        self.held |= read
        return read


def reads_of(windows: list[list[int]], num_slots: int) -> list[set[int]]:
    plan, reads = new_row_plan(ROWS, num_slots), []
    for number, ids in enumerate(windows):
        note_rows(plan, torch.tensor(ids, dtype=torch.int64), number)
        rows, slots = place_rows(plan, number, first=number - 1)
        assert torch.equal(find_slots(plan, rows).long(), slots)
        assert len(set(slots.tolist())) == len(slots)
        assert rows.tolist() == sorted(rows.tolist())
        held = [row for row in range(ROWS) if plan.slots[row] >= 0]
        assert all(plan.rows[plan.slots[row]] == row for row in held)
        assert (plan.rows >= 0).sum() == len(held)
        reads.append(set(rows.tolist()))
    return reads


@given(windows=windows_of(), num_slots=st.integers(0, ROWS + 1))
def test_as_many_rows_are_read_as_by_the_slow_plan(windows: list[list[int]], num_slots: int) -> None:
    slow, before, expected = Slow(num_slots), set[int](), []
    for ids in windows:
        expected.append(len(slow.place(ids, before)))
        before = set(ids)
    # Rows that were met as often leave in any order, which may make later windows differ.
    first = len(expected) if num_slots >= ROWS else min(2, len(expected))
    assert [len(rows) for rows in reads_of(windows, num_slots)][:first] == expected[:first]


def fewest_reads(windows: list[set[int]], num_slots: int) -> int:
    """Try all that could stay in memory; each window and the next are in memory at once."""

    @cache
    def fewest(number: int, held: frozenset[int]) -> int:
        if number == len(windows):
            return 0
        needed = windows[number]
        others = held - needed - (windows[number - 1] if number else set())
        must = (held | needed) - others
        room = num_slots - len(must)
        stays = (frozenset(kept) for size in range(min(room, len(others)) + 1) for kept in combinations(others, size))
        return len(needed - held) + min(fewest(number + 1, frozenset(must | kept)) for kept in stays)

    return fewest(0, frozenset())


@given(windows=windows_of(least=1))
def test_a_plan_that_has_room_for_all_rows_reads_each_once(windows: list[list[int]]) -> None:
    assert sum(map(len, reads_of(windows, ROWS))) == len({row for ids in windows for row in ids})


@given(windows=windows_of(least=1))
def test_no_plan_reads_fewer_rows_for_three_windows(windows: list[list[int]]) -> None:
    # The third window is not known when the first is placed, but nothing has to leave before it is.
    windows = windows[:3]
    num_slots = max(len(set(a) | set(b)) for a, b in zip([[], *windows], windows, strict=False))
    fewest = fewest_reads([set(ids) for ids in windows], num_slots)
    assert sum(map(len, reads_of(windows, num_slots))) == fewest


@given(windows=windows_of(), num_slots=st.integers(0, ROWS))
def test_rows_of_the_window_before_stay(windows: list[list[int]], num_slots: int) -> None:
    plan = new_row_plan(ROWS, num_slots)
    before: dict[int, int] = {}
    for number, ids in enumerate(windows):
        note_rows(plan, torch.tensor(ids, dtype=torch.int32), number)
        place_rows(plan, number, first=number - 1)
        assert all(plan.slots[row] == slot for row, slot in before.items())
        before = {row: int(plan.slots[row]) for row in ids if plan.slots[row] >= 0}


def test_rows_that_were_met_often_stay() -> None:
    plan = new_row_plan(ROWS, 3)
    for number, ids in enumerate([[1, 1, 2], [1, 3], [4], [5]]):
        note_rows(plan, torch.tensor(ids), number)
        place_rows(plan, number, first=number)
    assert find_slots(plan, torch.tensor([1, 2, 3])).tolist()[0] >= 0
    assert (find_slots(plan, torch.arange(ROWS)) >= 0).sum() == 3


def test_counts_stop_at_255() -> None:
    plan = new_row_plan(ROWS, 1)
    note_rows(plan, torch.zeros(300, dtype=torch.int64), 0)
    assert plan.met.tolist() == [255] + [0] * (ROWS - 1)


def test_ids_must_be_those_of_rows() -> None:
    plan = new_row_plan(ROWS, 2)
    with pytest.raises(IndexError, match="ids"):
        note_rows(plan, torch.tensor([0, ROWS]), 0)
    assert place_rows(plan, 0, first=0)[0].tolist() == []


def test_sizes_must_fit() -> None:
    with pytest.raises(ValueError, match="num_slots must be at most 2147483647, but is 2147483648"):
        new_row_plan(1, 1 << 31)


@given(num_rows=st.integers(0, 300), num_slots=st.integers(0, 50))
def test_the_memory_of_a_plan_is_known(num_rows: int, num_slots: int) -> None:
    plan = new_row_plan(num_rows, num_slots)
    assert sum(array.nbytes for array in plan) == row_plan_bytes(num_rows, num_slots)
