"""Programs of kernels run in order, stop, go on, and work with what is in their blocks."""

import gc
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from graphfeed.ops.cpu.compiler.program import Program, load_all
from graphfeed.ops.cpu.jit import Block, Ids, Int64s, UInt64, kernel
from tests.ops.cpu.compiler.kernels import Columns, anew, loads_of, walk


class Tape(NamedTuple):
    """Numbers in the order in which kernels wrote them."""

    notes: Int64s
    end: Int64s


@kernel
def note(tape: Tape, values: Ids, limit: int) -> int:
    """Note the sum of values; stop with it where it is above a limit."""
    total = 0
    for value in values:
        total += value
    tape.notes[tape.end[0]] = total
    tape.end[0] += 1
    return total if total > limit else 0


@kernel
def fill(tape: Tape, number: UInt64) -> int:
    """Note a number, without an array."""
    tape.notes[tape.end[0]] = np.int64(number)
    tape.end[0] += 1
    return 0


def new_tape() -> Tape:
    """Return a tape that is empty."""
    return Tape(torch.zeros(20, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))


def taken(tape: Tape) -> list[int]:
    """Return what was noted, and forget it."""
    found: list[int] = tape.notes[: tape.end[0]].tolist()
    tape.end[0] = 0
    return found


def new_program(tape: Tape) -> Program:
    """Return a program of four kernels."""
    program = Program()
    program.add(note, tape, torch.tensor([1, 2]), 10)
    program.add(note, tape, np.array([3, 4], np.int32), 10)
    program.add(fill, tape, 2**63 + 5)
    program.add(note, tape, torch.tensor([6]), 10)
    return program


def test_it_runs_its_kernels_in_order_and_again() -> None:
    tape = new_tape()
    program = new_program(tape)
    for _ in range(2):
        assert program.run() == (0, 4)
        assert taken(tape) == [3, 7, 5 - 2**63, 6]
    assert program.run(2) == (0, 4)
    assert taken(tape) == [5 - 2**63, 6]


def test_a_kernel_that_returns_a_number_stops_it_and_it_can_go_on_there() -> None:
    tape, values = new_tape(), torch.tensor([5, 6])
    program = new_program(tape)
    program.add(note, tape, values, 10)
    program.add(fill, tape, 1)
    assert program.run() == (11, 4)
    taken(tape)
    values[0] = 0  # a program works with what is in the arrays when it runs
    assert program.run(4) == (0, 6)
    assert taken(tape) == [6, 1]


def test_kernels_can_be_added_to_one_that_has_run() -> None:
    tape = new_tape()
    program = new_program(tape)
    program.run()
    program.add(fill, tape, 8)
    taken(tape)
    assert program.run() == (0, 5)
    assert taken(tape)[-1] == 8


def test_an_empty_one_does_nothing() -> None:
    assert Program().run() == (0, 0)


def test_it_keeps_its_arguments_alive() -> None:
    tape = new_tape()
    program = Program()
    for number in range(10):
        program.add(note, Tape(tape.notes, tape.end), torch.full((10_000,), number), 2**40)
    gc.collect()
    others = [torch.full((10_000,), -1) for _ in range(20)]  # they would take memory that was free
    program.run()
    assert taken(tape) == [10_000 * number for number in range(10)]
    assert len(others) == 20


def test_a_block_may_get_other_arrays_once_programs_are_made() -> None:
    first, second = new_tape(), new_tape()
    block, program = Block(first), Program()
    program.add(fill, block, 3)
    program.run()
    block.set_array("notes", second.notes)
    block.set_array("end", second.end)
    program.run()
    assert taken(first) == taken(second) == [3]


def test_arguments_are_checked_when_they_are_added() -> None:
    with pytest.raises(TypeError, match="values must be an array of int64 or int32 in 1 dim"):
        Program().add(note, new_tape(), torch.tensor([True]), 1)


def test_kernels_are_loaded_once_each_however_often_they_are_wanted() -> None:
    other = anew(note)
    wanted = [(other, ("int64",)), (other, ("int32",)), (other, ("int64",))]
    assert [load.signature for load in loads_of(lambda: load_all(wanted))] == ["int64", "int32"]
    assert loads_of(lambda: load_all(wanted)) == []


def columns(ids: torch.dtype = torch.int64) -> Columns:
    """Return two columns, with two ends and one."""
    return Columns(torch.tensor([0, 2, 3]), torch.tensor([2, 0, 1], dtype=ids), torch.arange(6).view(3, 2))


def found_in(taken: Any) -> list[int]:
    """Return what a kernel finds in columns, of node 0."""
    out = torch.zeros(3, dtype=torch.int64)
    walk(taken, torch.tensor([0]), out)
    found: list[int] = out.tolist()
    return found


def test_a_block_stands_for_its_tuple_and_its_arrays_can_be_replaced() -> None:
    block = Block(columns())
    assert found_in(block) == found_in(columns()) == [2, 2, 5]
    block.set_array("ends", torch.tensor([1, 1]))
    assert found_in(block) == found_in(block.values) == [2, 1, 3]
    block.set_borrowed("ends", other := torch.tensor([0, 1]))
    assert (found_in(block), len(other)) == ([2, 0, 1], 2)


def test_a_block_takes_contiguous_arrays_of_the_same_dtype() -> None:
    block, words = Block(columns()), "ends must be a contiguous array of int64, but is"
    wrong = [torch.zeros(2, dtype=torch.int32), np.zeros(2, np.int32), torch.arange(4)[::2], np.arange(4)[::2]]
    for array in wrong:
        with pytest.raises(TypeError, match=words):
            block.set_array("ends", array)
    assert found_in(block) == [2, 2, 5]
