"""Machine code does what its Python function does, and takes what the annotations say."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.cpu.compiler import kernel as kernel_module
from graphfeed.ops.cpu.compiler import program, signature
from graphfeed.ops.cpu.compiler.ahead import all_kernels
from graphfeed.ops.cpu.compiler.kernel import DEVICE_FUNCTIONS, Kernel
from graphfeed.ops.cpu.jit import UInt64s, device_function, kernel
from graphfeed.ops.cpu.structure.compact import compact
from graphfeed.ops.memory import ReadChoice
from graphfeed.ops.sampling.hops import hop_program
from graphfeed.ops.structure import place_nodes
from tests.gpu.calls import Call
from tests.gpu.compare_kernels import moved, run
from tests.ops.calls import INDICES, INDPTR, calls
from tests.ops.cpu.compiler.kernels import (
    Columns,
    add,
    add_rows,
    anew,
    loads_of,
    mix,
    scale,
    walk,
)
from tests.refusals import check_refused

INDEX = import_module("graphfeed.ops.sampling.high_degree_index")
PERMUTE = import_module("graphfeed.ops.sampling.permute")
REACHED_BY_OTHERS = {
    "compiler.program", "records.crc32c", "records.parse_examples", "records.scan_records",
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
        return [(tensor.dtype, tensor.numpy().tobytes()) for tensor in run(call, given)]


def more_calls() -> dict[str, Call]:
    """Return a call of each operation, and those that reach the passes which these leave out."""
    typed, one = EVERY["sample_hops with types"], EVERY["sample_hops by LABOR"]
    merged = EVERY["merge_columns"]
    twice = [own * 2 for own in merged.arguments["values"]]
    mapped, parts = {"reads": ReadChoice()}, torch.zeros(6, dtype=torch.int32)
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
        "by page": Call(typed.run, {**typed.arguments, "graph": typed.arguments["graph"]._replace(**mapped)}),
        "merge pairs": Call(merged.run, {**merged.arguments, "values": twice, "dtypes": [torch.int64] * 2}),
        "joined": Call(sample_joined, typed.arguments),
        "LABOR by page": Call(one.run, {**one.arguments, "graph": one.arguments["graph"]._replace(**mapped)}),
    }


def sample_joined(graph: ops.HopGraph, seeds: Any, fanouts: Any, keys: Any, drawing: ops.Drawing) -> list[torch.Tensor]:
    return [*ops.PreparedHops(graph, fanouts, drawing).sample(seeds, keys, joined=True).edges.values()]


def test_every_kernel_does_as_machine_code_what_its_python_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held for the kernels behind a valid call of each public operation."""
    monkeypatch.setattr(INDEX, "MIN_DEGREE", 3)
    monkeypatch.setattr(INDEX, "MAX_SHARE", 1)
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
    assert set(scale.codes) == {(ids, weights) for ids in ("int64", "int32") for weights in ("float32", "float64")}


def test_64_bits_overflow_in_silence() -> None:
    for value, is_twice in product([0, 1, 2**63, 2**64 - 1], [False, True]):
        out = np.zeros((2, 1), np.uint64)
        assert mix(value, out[0], is_twice) is mix.interpret(value, out[1], is_twice)
        assert out[0] == out[1], (value, is_twice)


def test_whole_numbers_are_of_64_bits_and_signed() -> None:
    for left, right in ((3, -5), (LARGEST, 1), (-LARGEST, -LARGEST), (np.int32(-4), True)):
        assert add(left, right) == (int(left) + int(right) + 2**63) % 2**64 - 2**63


LARGEST = 2**63 - 1


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_it_takes_tensors_and_numpys_arrays_of_one_and_two_dimensions(make: Any) -> None:
    out = make([1, 0, -1])
    assert add_rows(make([[1, 2, 3], [4, 5, 6]]), out) is None
    assert out.tolist() == [6, 7, 8]
    add_rows(make([[0, 0, 0]])[:0], out[:0])
    add_rows.interpret(make([[1, 1, 1]]), out)
    assert out.tolist() == [7, 8, 9]


@pytest.mark.parametrize("ids", [torch.int64, torch.int32])
def test_it_takes_named_tuples(ids: torch.dtype) -> None:
    table = torch.arange(6).view(3, 2)
    columns = Columns(torch.tensor([0, 2, 3]), torch.tensor([2, 0, 1], dtype=ids), table)
    out = torch.zeros(2, 6, dtype=torch.int64)
    nodes = torch.tensor([1, 0], dtype=ids)
    assert walk(columns, nodes, out[0]) == walk.interpret(columns, nodes, out[1]) == 3
    assert out.tolist() == [[1, 1, 3, 2, 2, 5]] * 2


def test_arrays_that_are_read_only_are_read() -> None:
    matrix, out = np.ones((2, 2), np.int64), np.zeros(2, np.int64)
    matrix.flags.writeable = False
    add_rows(matrix, out)
    assert out.tolist() == [2, 2]


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


def test_it_is_loaded_once_for_each_choice_of_dtypes() -> None:
    other = anew(scale)
    wide, narrow = np.zeros(2), np.zeros(2, np.float32)
    loads = loads_of(
        lambda: [other(np.arange(2), weights, weights) for weights in (wide, narrow, wide, narrow, torch.zeros(2))]
    )
    assert [load.signature for load in loads] == ["int64, float64", "int64, float32"]
    assert all(load.kernel == "tests.ops.cpu.compiler.kernels.scale" and load.seconds > 0 for load in loads)


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


def test_its_name_is_that_of_its_module_inside_of_the_room() -> None:
    assert compact.name == "structure.compact.compact"
    assert compact.__doc__ == compact.function.__doc__


@device_function
def square(number: Any) -> Any:
    """Multiply a number by itself."""
    return number * number


@kernel
def add_squares(first: int, second: int) -> int:
    """Call a function twice."""
    return square(first) + square(second)  # type: ignore[no-any-return]


def test_python_and_kernels_call_device_functions() -> None:
    assert square(3) == 9
    assert square in DEVICE_FUNCTIONS
    assert add_squares(3, 4) == 25
