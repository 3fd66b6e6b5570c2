"""Kernels and programs of kernels do what their Python functions do, and take what the annotations say."""

import gc
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.cpu.compiler import kernel as kernel_module
from graphfeed.ops.cpu.compiler import program, signature
from graphfeed.ops.cpu.compiler.build import all_kernels
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.program import Program
from graphfeed.ops.cpu.jit import Block, Ids, Int64s, UInt64, UInt64s, kernel
from graphfeed.ops.memory import ReadChoice, as_bytes
from graphfeed.ops.sampling.hops import hop_program
from graphfeed.ops.structure import place_nodes
from graphfeed.testing import limits
from tests.kinds.calls import INDICES, INDPTR, calls
from tests.kinds.compare_kernels import moved, run
from tests.kinds.gpu_calls import Call
from tests.kinds.refusals import check_refused
from tests.unit.compiler.kernels import (
    Columns,
    add,
    add_rows,
    scale,
    walk,
)

PERMUTE = import_module("graphfeed.ops.sampling.permute")
REACHED_BY_OTHERS = {
    "compiler.program", "issue_launches", "records.crc32c", "records.parse_examples", "records.scan_records",
    "rows.gather_by_page", "rows.read_rows", "rows.row_plan",
}  # fmt: skip
"""Kernels that valid calls don't run completely. Tests of their packages compare them with references."""
EVERY = {name: call for name, call in calls().items() if name != "pin_in_place"}  # which needs a GPU


def ran(call: Call, change: Mapping[str, Any]) -> list[tuple[torch.dtype, Any]]:
    """Return what a call returns and writes, with programs that no other call has used."""
    made: dict[int, torch.Tensor] = {}  # what was one tensor stays one
    given = {
        name: moved(value, lambda tensor: made.setdefault(id(tensor), tensor.clone()))
        for name, value in {**call.arguments, **change}.items()
    }
    with patch.object(hop_program.PROGRAMS, "idle", OrderedDict()):
        return [(tensor.dtype, as_bytes(tensor).tobytes()) for tensor in run(call, given)]


def more_calls() -> dict[str, Call]:
    """Return a call of each operation, and those that reach the passes which these leave out."""
    typed, one = EVERY["sample_hops with types"], EVERY["sample_hops by LABOR"]
    merged, coded = EVERY["merge_columns"], EVERY["decode_rows"]
    codes, columns = coded.arguments["codes"], coded.arguments["columns"]
    no_factors = {**coded.arguments, "scale": None, "offset": None}
    twice = [own * 2 for own in merged.arguments["values"]]
    parts = torch.zeros(6, dtype=torch.int32)
    placed = {
        "indptr": INDPTR,
        "indices": INDICES,
        "parts": parts,
        "loads": torch.tensor([6, 0]),
        "first": 0,
        "limit": 4,
    }
    return {
        **EVERY,
        "permute few": Call(ops.permute, {"start": 0, "stop": 9, "size": 9, "key": 1}),
        "place_nodes": Call(place_nodes, placed),
        "compact many": Call(ops.compact, {"seeds": INDICES, "neighbors": INDICES.repeat(20), "num_nodes": 6}),
        "decode_rows of 4 bits": Call(
            ops.decode_rows, {**coded.arguments, "bits": 4, "codes": codes[:, : -(-columns // 2)].contiguous()}
        ),
        "decode_rows of 16 bits": Call(ops.decode_rows, {**no_factors, "bits": 16, "codes": codes.half()}),
        "decode_rows with own scales": Call(ops.decode_rows, {**no_factors, "codes": codes.repeat(1, 3)}),
        "by page": Call(sample_by_page, typed.arguments),
        "merge pairs": Call(merged.run, {**merged.arguments, "values": twice, "dtypes": [torch.int64] * 2}),
        "joined": Call(sample_joined, typed.arguments),
        "window": Call(sample_window, typed.arguments),
        "joined window": Call(partial(sample_window, joined=True), typed.arguments),
        "LABOR by page": Call(one.run, {**one.arguments, "reads": ReadChoice()}),
        **{f"train_rows by {name}": call_of_rule(name) for name in ("sgd", "rowwise", "adam")},
    }


def call_of_rule(name: str) -> Call:
    """Return a call that trains rows, of which one is repeated, by another optimizer."""
    rule, ids = ops.StepRule(name, 0.5, mean=True), torch.tensor([4, 1, 4])
    table = {"rows": torch.ones(6, 5), "state": torch.zeros(6, rule.width(5)), "ids": ids}
    return Call(partial(ops.train_rows, rule=rule), {**table, "gradients": torch.arange(15.0).reshape(3, 5)})


def sample_by_page(graph: ops.Graph, seeds: Any, fanouts: Any, keys: Any, drawing: ops.Drawing) -> Any:
    return ops.PreparedHops(graph, fanouts, drawing, ReadChoice()).sample(seeds, keys)


def sample_joined(graph: ops.Graph, seeds: Any, fanouts: Any, keys: Any, drawing: ops.Drawing) -> list[torch.Tensor]:
    ids, sample = torch.arange(len(graph.indices)), ops.PreparedHops(graph, fanouts, drawing).sample
    return [*sample(seeds, keys, read=ids, joined=True).edges.values()]


def sample_window(
    graph: ops.Graph, seeds: Any, fanouts: Any, keys: Any, drawing: ops.Drawing, joined: bool = False
) -> Any:
    prepared = ops.PreparedHops(graph, fanouts, drawing)
    found = prepared.sample_window([seeds, seeds], [keys, keys[::-1]], [None, None], joined=joined)
    return [[*own.edges.values()] for own in found] if joined else found


@limits(index_degree=3, index_share=1)
def test_every_kernel_does_as_machine_code_what_its_python_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held for the kernels behind a valid call of each public operation."""
    monkeypatch.setattr(PERMUTE, "sorted_places", PERMUTE.sorted_places.__wrapped__)
    cases = [(name, call, change) for name, call in more_calls().items() for change in call.changes]
    compiled = [ran(call, change) for _, call, change in cases]
    interpreted, interpret = set[tuple[str, str]](), Kernel.interpret

    def note(kernel: Kernel, *arguments: Any) -> Any:
        interpreted.add((kernel.__module__.removeprefix("graphfeed.ops.cpu."), kernel.__name__))
        return interpret(kernel, *arguments)

    monkeypatch.setattr(Kernel, "interpret", note)
    for module in (kernel_module, program, signature):
        monkeypatch.setattr(module, "INTERPRETED", True)
    for (name, call, change), expected in zip(cases, compiled, strict=True):
        assert ran(call, change) == expected, name
    every = {(kernel.__module__.removeprefix("graphfeed.ops.cpu."), kernel.__name__) for kernel, _ in all_kernels()}
    assert {module for module, _ in every - interpreted} <= REACHED_BY_OTHERS


def test_machine_code_does_what_the_function_does_for_each_choice_of_dtypes() -> None:
    for ids, weights in scale.signature.variants():
        numbers, factors = np.array([-7, 0, 5, 2**31 - 1], ids), np.array([0.1, -2.5, 1e-8, 3.0], weights)
        compiled, interpreted = np.empty_like(factors), np.empty_like(factors)
        scale(numbers, factors, compiled)
        scale.interpret(numbers, factors, interpreted)
        assert compiled.tobytes() == interpreted.tobytes(), (ids, weights)
        by_words = np.empty_like(factors)
        words = [word for own in (numbers, factors, by_words) for word in (own.ctypes.data, own.size)]
        scale.call_words((ids, weights), words)
        assert compiled.tobytes() == by_words.tobytes(), (ids, weights)
    assert set(scale.codes) == {(ids, weights) for ids in ("int64", "int32") for weights in ("float32", "float64")}


def test_whole_numbers_are_of_64_bits_and_signed() -> None:
    for left, right in ((3, -5), (LARGEST, 1), (-LARGEST, -LARGEST), (np.int32(-4), True)):
        assert add(left, right) == (int(left) + int(right) + 2**63) % 2**64 - 2**63


LARGEST = 2**63 - 1


def test_it_takes_arrays_of_one_and_two_dimensions_and_named_tuples() -> None:
    read_only = np.array([[1, 2, 3], [4, 5, 6]])
    read_only.flags.writeable = False
    for matrix, make in ((read_only, np.array), (torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor)):
        out = make([1, 0, -1])
        assert add_rows(matrix, out) is None
        add_rows(matrix[:0], out)
        assert out.tolist() == [6, 7, 8]
    for ids in (torch.int64, torch.int32):
        ends, nodes = torch.tensor([2, 0, 1], dtype=ids), torch.tensor([1, 0], dtype=ids)
        columns, out = Columns(torch.tensor([0, 2, 3]), ends, torch.arange(6).view(3, 2)), torch.zeros(6).long()
        assert walk(columns, nodes, out) == 3
        assert out.tolist() == [1, 1, 3, 2, 2, 5]


def test_what_it_does_not_take_is_refused_at_each_call() -> None:
    two, narrow, gaps = np.zeros(2), np.zeros(2, np.float32), "must be contiguous, but one of shape (2,) is not"
    ids, wrong = torch.tensor([1], dtype=torch.int32), torch.zeros(2, 2, dtype=torch.uint8)
    columns, out = Columns(torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(2, 2).long()), torch.zeros(3).long()
    ask = re.escape
    table = [
        (lambda: scale(two, narrow, two), TypeError, "numbers must be an array of int64 or int32 in 1 dim"),
        (lambda: scale(np.arange(2), narrow, two), TypeError, "out must be an array of float32 in 1 dim"),
        (lambda: scale(np.zeros((2, 1), int), two, two), TypeError, r"numbers must be .* but is int64 of shape \(2, 1"),
        (lambda: scale(np.arange(4)[::2], two, two), TypeError, ask(gaps)),
        (lambda: scale(torch.arange(4)[::2], two, two), TypeError, ask(gaps)),
        (lambda: add(1, np.array(1)), TypeError, "right must be a number, but is ndarray"),
        (lambda: add(1, torch.tensor(1)), TypeError, "right must be a number, but is Tensor"),
        (lambda: add(1, (1, 2)), TypeError, "right must be a number, but is tuple"),
        (lambda: walk(columns, ids, out), TypeError,
         "nodes must be an array of int64 in 1 dimension, but is torch.int32"),
        (lambda: walk(columns._replace(table=wrong), ids, out), TypeError,
         "columns.table must be an array of int64 in 2"),
        (lambda: walk(columns, out), ValueError, "zip"),
        (lambda: walk(columns, out, out, out), ValueError, "zip"),
    ]  # fmt: skip
    check_refused(table * 2)


@kernel
def scramble(times: int, out: UInt64s) -> None:
    """Take a while."""
    value = np.uint64(1)
    for _ in range(times):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    out[0] = value


def test_another_thread_runs_python_meanwhile() -> None:
    out, moments = np.zeros(1, np.uint64), [0.0]

    def look_at_the_clock() -> None:
        while out[0] == 0:
            moments.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=look_at_the_clock)
    scramble(0, np.ones(1, np.uint64))  # so that it is compiled
    start = time.monotonic()
    thread.start()
    scramble(50_000_000, out)
    seconds = time.monotonic() - start
    thread.join()
    assert [moment for moment in moments if 0.2 < (moment - start) / seconds < 0.8]


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


def test_it_runs_its_kernels_in_order_and_stops_where_one_returns_a_number() -> None:
    tape, values = new_tape(), torch.tensor([5, 6])
    assert Program().run() == (0, 0)
    program = new_program(tape)
    for _ in range(2):
        assert program.run() == (0, 4)
        assert taken(tape) == [3, 7, 5 - 2**63, 6]
    program.add(note, tape, values, 10)
    program.add(fill, tape, 1)
    assert program.run(2) == (11, 4)
    assert taken(tape) == [5 - 2**63, 6, 11]
    values[0] = 0  # a program works with what is in the arrays when it runs
    assert program.run(4) == (0, 6)
    assert taken(tape) == [6, 1]
    with pytest.raises(TypeError, match="values must be an array of int64 or int32 in 1 dim"):
        program.add(note, new_tape(), torch.tensor([True]), 1)


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
