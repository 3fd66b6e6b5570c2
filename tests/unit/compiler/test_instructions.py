"""Each instruction does as machine code what its Python function says."""

import ast
import ctypes
import mmap
import os
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.instructions import LAUNCH
from graphfeed.ops.cpu.issue_launches import issue_launches
from graphfeed.ops.cpu.jit import (
    Ids,
    Int64Matrix,
    Int64s,
    UInt8s,
    UInt32s,
    UInt64,
    UInt64s,
    Weights,
    copy_bytes,
    count_bits,
    kernel,
    lanes_below,
    less_product,
    load_word,
    lowest_bit,
    multiply_high,
    prefetch,
    read_at,
    square_root,
    will_need,
)
from tests.unit.compiler.kernels import divide

NUMBERS = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@kernel
def combine(left: UInt64, right: UInt64, third: UInt64, out: UInt64s) -> bool:
    """Note the bits of a number, and the high half of a product; compare two products."""
    out[0] = np.uint64(count_bits(left))
    out[1] = multiply_high(left, right)
    if left != 0:
        out[2] = np.uint64(lowest_bit(left))
    return less_product(left, right, third, left)


def test_bits_and_products_of_64_bits() -> None:
    for left, right in product(NUMBERS, NUMBERS):
        for third in (right, *NUMBERS[::3]):
            out = np.zeros((2, 3), np.uint64)
            assert combine(left, right, third, out[0]) is combine.interpret(left, right, third, out[1])
            assert out[0].tolist() == out[1].tolist()
            assert out[0, 1] == left * right >> 64
            assert combine(left, right, third, out[0]) == (left * right < third * left)


@kernel
def mark(values: UInt32s, first: int, limit: int) -> int:
    """Mark values below a limit."""
    return np.int64(lanes_below(values, first, np.uint32(limit)))  # type: ignore[return-value]


def test_values_below_a_limit_wherever_they_lie() -> None:
    for limit, first in product([0, 3, 2**31, 2**31 + 5, 2**32 - 1], [0, 1, 7]):
        values = np.random.default_rng(limit).integers(0, 2**32, 39, np.uint32)
        values[::3] = limit
        expected = sum(1 << place for place in range(32) if values[first + place] < limit)
        assert mark(values, first, limit) == mark.interpret(values, first, limit) == expected


@kernel
def take_roots(values: Weights) -> None:
    """Replace numbers by their square roots."""
    for number in range(values.size):
        values[number] = square_root(values[number])


def test_square_roots_are_rounded_once_to_the_dtype_of_the_number() -> None:
    for kind in (np.float32, np.float64):
        values: Any = np.random.default_rng(0).uniform(0, 10, 1000).astype(kind)
        values[:4] = 0, np.inf, 2, np.finfo(kind).tiny
        expected, interpreted = np.sqrt(values), values.copy()
        take_roots(values)
        take_roots.interpret(interpreted)
        assert values.tolist() == interpreted.tolist() == expected.tolist()


@kernel
def copy(out: UInt8s, to: int, source: UInt8s, start: int, size: int, words: UInt64s) -> None:
    """Copy bytes, and note the word that begins where they do."""
    prefetch(source, start + 1000)
    copy_bytes(out, to, source, start, size)
    words[0] = load_word(source, start)


def test_bytes_are_copied_and_loaded_from_any_address() -> None:
    runs: list[Any] = [copy, copy.interpret]
    for size, (to, start) in product([0, 1, 7, 8, 100], [(0, 0), (3, 5)]):
        source, words = np.arange(120, dtype=np.uint8), np.zeros((2, 1), np.uint64)
        out, expected = np.zeros((2, 110), np.uint8), np.zeros(110, np.uint8)
        expected[to : to + size] = source[start : start + size]
        for number, run in enumerate(runs):
            run(out[number], to, source, start, size, words[number])
            assert out[number].tolist() == expected.tolist(), (size, to, start)
        assert words[0] == words[1] == int.from_bytes(source[start : start + 8].tobytes(), "little")


@kernel
def ask(address: int, size: int) -> int:
    """Ask for pages."""
    will_need(address, size)
    return 1


def test_pages_are_asked_for_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "pages").write_bytes(bytes(3 * mmap.PAGESIZE))
    with (tmp_path / "pages").open("rb") as file:
        pages = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    for address, size in ((pages.ctypes.data, pages.size), (0, mmap.PAGESIZE), (1, 1)):
        assert ask(address, size) == ask.interpret(address, size) == 1
    assert not pages.any()
    own = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE), np.uint8)
    own[:] = 7
    ask(own.ctypes.data, own.size)
    assert (own == 7).all(), "other advice throws pages away"


@kernel
def read(file: int, segments: Int64s, count: int, start: int) -> int:
    """Read to some places."""
    return read_at(file, segments, count, start)


def test_files_are_read_to_several_places(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(20)))
    out = np.zeros((2, 12), np.uint8)
    runs: list[Any] = [read, read.interpret]
    with path.open("rb") as file:
        for number, run in enumerate(runs):
            address = out[number].ctypes.data
            segments = np.array([address, 2, address + 6, 5])
            assert run(file.fileno(), segments, 2, 10) == 7
            assert run(file.fileno(), segments, 2, 17) == 3
            assert run(file.fileno(), segments, 1, 20) == 0
    assert out[0].tolist() == out[1].tolist() == [17, 18, 0, 0, 0, 0, 19, 13, 14, 15, 16, 0]
    closed = os.open(path, os.O_RDONLY)
    os.close(closed)
    assert read(closed, segments, 1, 0) == read.interpret(closed, segments, 1, 0) == -1


class Shelf(NamedTuple):
    """Arrays that kernels take in one argument."""

    ids: Ids
    table: Int64Matrix
    weights: Weights
    out: Int64s


@kernel
def count_down(shelf: Shelf) -> int:
    """Write to one array of a tuple until another one says stop, which is the same memory."""
    steps = 0
    while shelf.table[0, 0] > 0:
        shelf.out[0] -= 1
        steps += 1
    return steps


def test_what_is_written_through_one_array_is_read_through_another() -> None:
    shared = np.array([5])
    shelf = Shelf(np.zeros(1, np.int64), shared.reshape(1, 1), np.ones(1), shared)
    assert count_down(shelf) == 5


@pytest.mark.parametrize(("left", "right"), [(7, -2), (-7, 2), (1, 0)])
def test_a_division_raises_nothing(left: int, right: int) -> None:
    out = np.ones((2, 1), np.int64)
    divide(left, right, out[0])
    assert out[0] == (left // right if right else 0)


def test_the_compiler_uses_public_names_of_numba_alone() -> None:
    for path in (SOURCES / "compiler").glob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not [name for name in imported if name.startswith("numba.core")], path
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        private = {name for name in read if name.startswith("_") and not name.startswith("__")}
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert private <= own | {"_asdict", "_exit"}, path


def test_launches_are_made_with_patched_words_until_one_fails() -> None:
    seen: list[tuple[Any, ...]] = []
    words = np.zeros(4, np.int64)

    @LAUNCH  # type: ignore[untyped-decorator]
    def start(*given: Any) -> int:
        seen.append((*given, words.tolist()))
        return 7 if given[0] == 12 else 0

    address = ctypes.cast(start, ctypes.c_void_p).value
    patches, bases = np.array([1, 1, 5, 3, 0, -2]), np.array([1 << 40, -1])
    calls = np.array([11, 1 << 16, 101, 12, 3, 102, 13, 4, 103])
    for run in (issue_launches, issue_launches.interpret):
        words.fill(9)
        assert run(words, patches, bases, calls, address, 256, 5 << 33) == 7
        left = [9, 4, 9, (1 << 40) - 2]
        assert seen == [
            (11, 1 << 16, 1, 1, 256, 1, 1, 0, 5 << 33, None, 101, left),
            (12, 3, 1, 1, 256, 1, 1, 0, 5 << 33, None, 102, left),
        ]
        seen.clear()
        assert run(words, patches[:0], bases, calls[:3], address, 32, 0) == 0
        assert seen == [(11, 1 << 16, 1, 1, 32, 1, 1, 0, None, None, 101, left)]
        seen.clear()
