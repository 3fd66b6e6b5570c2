"""Numba is asked for machine code that needs nothing of Numba's, and what that takes is said once."""

import ast
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import compile as compile_module
from graphfeed.ops.cpu.compiler import folders
from graphfeed.ops.cpu.compiler.compile import compile_kernel
from graphfeed.ops.cpu.compiler.folders import SOURCES, Notices
from graphfeed.ops.cpu.compiler.kernel import CALL, Kernel
from graphfeed.ops.cpu.compiler.machine import link, processor
from graphfeed.ops.cpu.jit import Block, Int64s, kernel
from tests.ops.cpu.compiler.bare import printed
from tests.ops.cpu.compiler.kernels import (
    Columns,
    add,
    anew,
    double,
    loads_of,
    make_array,
    scale,
    walk,
    was_compiled,
)


def test_machine_code_calls_nothing_of_numba_s() -> None:
    symbol, code = compile_kernel(scale, ("int32", "float64"))
    assert symbol.startswith("tests.ops.cpu.compiler.kernels.scale.int32-float64.")
    assert symbol.encode() in code
    assert b"NRT_" not in code
    assert b"numba_" not in code


def test_another_thread_may_import_functions_while_a_kernel_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class ImportsMore:
        def __bool__(self) -> bool:
            functions[object()] = True
            return True

    functions = {double: ImportsMore(), **vars(compile_module)["DEVICE_FUNCTIONS"]}
    monkeypatch.setattr(compile_module, "DEVICE_FUNCTIONS", functions)
    assert b"double" in compile_kernel(double, ())[1]


@kernel
def refuse(number: int) -> int:
    """Do what kernels can't."""
    if number < 0:
        raise ValueError("negative")
    return number


@pytest.mark.parametrize("wrong", [make_array, refuse])
def test_what_needs_numba_when_it_runs_is_refused_by_name(wrong: Kernel) -> None:
    with pytest.raises(NotImplementedError, match=rf"{wrong.name} needs \['.*'\]: kernels can't create arrays or "):
        wrong(3)
    assert wrong.codes == {}


def test_functions_of_one_name_are_not_mixed_up() -> None:
    def made(constant: int) -> Kernel:
        def body(numbers: Int64s) -> None:
            numbers[0] = constant

        return Kernel(body)

    first, second, out = made(1), made(2), np.zeros(1, np.int64)
    for value, other in ((1, first), (2, second)):
        symbol, code = compile_kernel(other, ())
        block = np.array([out.ctypes.data, 1])
        CALL(link(symbol, code))(block.ctypes.data)
        assert out[0] == value


def test_an_argument_that_is_a_tuple_of_arrays_is_compiled() -> None:
    """`lowering.BlockType` rests on Numba finding the attributes of a subclass of `types.NamedTuple`."""
    columns = Columns(np.array([0, 2, 3]), np.array([1, 0, 1]), np.array([[0, 5], [0, 7]]))
    assert anew(walk)(Block(columns), np.array([0, 1]), out := np.zeros(6, np.int64)) == 3
    assert out.tolist() == [2, 1, 7, 1, 1, 7]


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


RUN = """
import logging
import numpy as np
logging.disable()  # On a busy machine, compiling takes long enough to be said.
from graphfeed.ops.cpu.compiler.machine import processor
from tests.ops.cpu.compiler.kernels import scale
out = np.empty(3)
scale(np.array([1, -2, 3]), np.array([0.1, 0.2, 0.3]), out)
print(processor()[0], out.tobytes().hex())
"""


def test_threads_that_need_the_same_kernel_link_it_once() -> None:
    add(1, 1)  # so that it is on disk
    barrier = threading.Barrier(8, timeout=20)

    def call(fresh: Kernel, number: int) -> None:
        barrier.wait()
        assert fresh(number, 1) == number + 1

    def call_from_threads(fresh: Kernel) -> None:
        list(pool.map(partial(call, fresh), range(8)))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            assert len(loads_of(partial(call_from_threads, anew(add)))) == 1


@pytest.mark.slow
def test_it_is_made_for_this_processor_unless_another_one_is_named(kept: Path) -> None:
    found = {name: printed(RUN, NUMBA_CPU_NAME=name).split() for name in ("generic", "")}
    names, results = zip(*found.values(), strict=True)
    assert names == ("generic", processor()[0])
    assert len(set(results)) == 1
    assert len(list(kept.glob("*.scale.*.code"))) == 2


COMPILING = "graphfeed is compiling its kernels for this machine, "


def compile_for(seconds: float, clock: Notices, folder: Path | None = None) -> None:
    """Record some seconds of compilation."""
    with clock.timing(folder):
        clock.spent += seconds


def test_a_subject_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    for subject in ("first", "second", "first"):
        notices.warn_once(subject, f"the {subject}")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "the first"),
        (logging.WARNING, "the second"),
    ]


def test_nothing_is_said_for_two_seconds_in_all(caplog: pytest.LogCaptureFixture) -> None:
    clock, other = Notices(), Notices()
    compile_for(1.9, clock)
    compile_for(1.9, other)
    assert not caplog.records
    compile_for(0.2, clock)
    compile_for(9.0, clock)
    assert [record.message for record in caplog.records] == [f"{COMPILING}and can't save them"]


def test_of_the_processes_of_a_run_one_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def say() -> int:
        compile_for(2.5, Notices(), tmp_path)  # as in another process
        return len(caplog.records)

    assert [say(), say()] == [1, 1]
    (note,) = tmp_path.iterdir()
    os.utime(note, (0, 0))  # a run of long ago
    assert [say(), say()] == [2, 2]


def test_what_is_compiled_counts_and_what_is_found_does_not(
    kept: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert was_compiled(add)
    spent = folders.NOTICES.spent
    assert spent > 0
    monkeypatch.setattr(folders, "SILENT_SECONDS", 0.0)
    assert not was_compiled(add)
    assert folders.NOTICES.spent == spent
    assert not caplog.records
    assert was_compiled(double)
    assert was_compiled(scale, ("int64", "float32"))
    assert [record.message for record in caplog.records] == [f"{COMPILING}once, and keeps them in {kept}"]


def test_a_program_that_has_set_up_no_logging_sees_it_on_stderr(kept: Path) -> None:
    body = """
import contextlib, io
from graphfeed.ops.cpu.compiler import folders
from tests.ops.cpu.compiler.kernels import add
folders.SILENT_SECONDS = 0.0
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    add(1, 2)
print(stderr.getvalue(), end="")
"""
    assert printed(body) == f"{COMPILING}once, and keeps them in {kept}\n"
    assert printed(body) == ""
