import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.cpu.jit import UInt64s, kernel
from graphfeed.ops.cpu.structure.compact import compact
from tests.forked import in_child
from tests.ops.cpu.compiler.kernels import Columns, add, add_rows, anew, double, loads_of, mix, scale, walk

LARGEST = 2**63 - 1


@pytest.mark.parametrize("weights", ["float32", "float64"])
@pytest.mark.parametrize("ids", ["int32", "int64"])
def test_machine_code_does_what_the_function_does_for_each_choice_of_dtypes(ids: str, weights: str) -> None:
    numbers = np.array([-7, 0, 5, 2**31 - 1], ids)
    factors = np.array([0.1, -2.5, 1e-8, 3.0], weights)
    compiled, interpreted = np.empty_like(factors), np.empty_like(factors)
    scale(numbers, factors, compiled)
    scale.interpret(numbers, factors, interpreted)
    assert compiled.tobytes() == interpreted.tobytes()
    assert (ids, weights) in scale.codes


@pytest.mark.parametrize("is_twice", [False, True])
@pytest.mark.parametrize("value", [0, 1, 2**63, 2**64 - 1])
def test_64_bits_overflow_in_silence(value: int, is_twice: bool) -> None:
    out = np.zeros((2, 1), np.uint64)
    results = mix(value, out[0], is_twice), mix.interpret(value, out[1], is_twice)
    assert results[0] is results[1]
    assert out[0] == out[1]


@pytest.mark.parametrize(("left", "right"), [(3, -5), (LARGEST, 1), (-LARGEST, -LARGEST), (np.int32(-4), True)])
def test_whole_numbers_are_of_64_bits_and_signed(left: Any, right: Any) -> None:
    assert add(left, right) == (int(left) + int(right) + 2**63) % 2**64 - 2**63


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros(2), np.zeros(2, np.float32), np.zeros(2)], "numbers must be an array of int64 or int32 in 1 dim"),
        ([np.arange(2), np.zeros(2, np.float32), np.zeros(2)], "out must be an array of float32 in 1 dim"),
        ([np.zeros((2, 1), int), np.zeros(2), np.zeros(2)], r"numbers must be .* but is int64 of shape \(2, 1\)"),
        ([np.arange(4)[::2], np.zeros(2), np.zeros(2)], r"contiguous arrays, but one of shape \(2,\) has gaps"),
        ([torch.arange(4)[::2], np.zeros(2), np.zeros(2)], r"contiguous arrays, but one of shape \(2,\) has gaps"),
    ],
)
def test_what_it_does_not_take_is_refused_at_each_call(arguments: list[Any], message: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            scale(*arguments)


@pytest.mark.parametrize("wrong", [np.array(1), torch.tensor(1), (1, 2)])
def test_an_array_is_no_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"right must be a number, but is (ndarray|Tensor|tuple)"):
        add(1, wrong)


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


def test_a_forked_process_goes_on_with_what_was_loaded_and_loads_more() -> None:
    used, unused = anew(double), anew(add)
    numbers = np.arange(3)
    used(numbers)
    assert in_child(lambda: [used(numbers), numbers.tolist(), unused(2, 3)]) == "[None, [0, 4, 8], 5]"
    used(numbers)
    assert numbers.tolist() == [0, 4, 8]


def test_its_name_is_that_of_its_module_inside_of_the_room() -> None:
    assert compact.name == "structure.compact.compact"
    assert compact.__doc__ == compact.function.__doc__
