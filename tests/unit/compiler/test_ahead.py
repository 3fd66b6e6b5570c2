"""Helper processes compile kernels: all of them ahead, or those that a pipeline waits for."""

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import ahead
from graphfeed.ops.cpu.compiler.ahead import all_kernels, compile_all, compile_in_helper
from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.program import Program
from graphfeed.ops.cpu.sampling.permute import hash_places, permute
from tests.stand_ins.forked import in_child
from tests.stand_ins.scripts import without_kernels
from tests.unit.compiler.bare import printed
from tests.unit.compiler.kernels import add, anew, loads_of, make_array, scale

pytestmark = pytest.mark.usefixtures("no_leaks")

MANY = [(anew(scale), dtypes) for dtypes in scale.signature.variants()]

HASH = """
import logging
import numpy
logging.disable()  # on a busy machine, compiling takes long enough to be logged
from graphfeed.ops.cpu.sampling.permute import hash_places
hash_places(numpy.uint64(1), places := numpy.empty(3, dtype=numpy.uint64))
print(places.tolist(), "numba" in sys.modules)
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, kept: Path) -> list[tuple[Kernel, tuple[str, ...]]]:
    """Replace the package's kernels by two that are not compiled yet."""
    two: list[tuple[Kernel, tuple[str, ...]]] = [(hash_places, ()), (permute, ())]
    monkeypatch.setattr(ahead, "all_kernels", lambda: two)
    return two


def test_all_kernels_of_the_package_are_listed_once_for_each_choice_of_dtypes() -> None:
    listed = [(kernel.__module__, kernel.__name__, dtypes) for kernel, dtypes in all_kernels()]
    assert len(listed) == len(set(listed))
    written = {
        (".".join(path.relative_to(SOURCES.parents[2]).with_suffix("").parts), node.name)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and {"kernel", "Kernel"} & {ast.unparse(by) for by in node.decorator_list}
    }
    assert {(module, name) for module, name, _ in listed} == written
    assert ("graphfeed.ops.cpu.compiler.program", "run_steps") in written
    module = "graphfeed.ops.cpu.rows.gather"
    assert {dtypes for *kernel, dtypes in listed if kernel == [module, "gather_words"]} == {
        (words, ids) for words in ("uint8", "uint16", "uint32", "uint64") for ids in ("int32", "int64")
    }
    body = "from graphfeed.ops.cpu.compiler.ahead import all_kernels\nall_kernels()\nprint('torch' in sys.modules)"
    assert printed(body) == "False\n"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_kernel_can_be_compiled() -> None:
    loads = list(compile_all())
    assert len(loads) == len({(load.kernel, load.signature) for load in loads}) == len(all_kernels())


def test_all_kernels_are_compiled_or_found(few: list[Any]) -> None:
    for compiled in (True, False):
        loads = list(compile_all(2))
        assert {load.kernel for load in loads} == {kernel.name for kernel, _ in few}
        assert all(load.compiled is compiled and load.seconds > 0 for load in loads)


def test_kernels_that_can_not_be_compiled_are_named_after_the_others(few: list[Any]) -> None:
    few[1:1] = [(make_array, ())]
    loads = compile_all(1)
    assert {next(loads).kernel for _ in range(2)} == {hash_places.name, permute.name}
    with pytest.raises(RuntimeError, match=f"^1 kernels could not be compiled: {make_array.name} needs "):
        next(loads)


@pytest.mark.slow
def test_the_process_that_compiles_imports_no_numba_and_its_settings_change_no_code(tmp_path: Path) -> None:
    others = {"OPT": "0", "DISABLE_JIT": "0", "BOUNDSCHECK": "1", "DEBUGINFO": "1", "EXTEND_VARIABLE_LIFETIMES": "1"}
    found = []
    for folder, settings in (("usual", {}), ("others", others)):
        numba = {f"NUMBA_{name}": value for name, value in settings.items()}
        said = printed(HASH, **without_kernels(tmp_path / folder), **numba)
        assert said.endswith("] False\n")
        (file,) = (tmp_path / folder).rglob("*hash_places*.code")
        found.append((said, file.read_bytes()))
    assert found[0] == found[1]


def test_a_helper_that_has_ended_is_replaced() -> None:
    ahead.end_idle()
    expected = compile_in_helper(hash_places, ())
    (helper,) = ahead.IDLE
    helper.kill()
    helper.wait()
    assert compile_in_helper(hash_places, ()) == expected
    assert helper not in ahead.IDLE


@pytest.mark.slow
@pytest.mark.thorough
def test_a_helper_without_jobs_ends() -> None:
    compile_in_helper(hash_places, ())
    (helper,) = ahead.IDLE
    assert helper.wait(timeout=ahead.IDLE_SECONDS + 20) == 0


def test_a_helper_outlives_a_forked_process_that_forgets_it() -> None:
    compile_in_helper(hash_places, ())
    (helper,) = ahead.IDLE
    assert in_child(lambda: len(ahead.IDLE)) == "0"
    assert compile_in_helper(hash_places, ()) is not None
    assert [helper] == ahead.IDLE


def test_an_interrupt_ends_the_helper_that_is_waited_for() -> None:
    compile_in_helper(hash_places, ())
    (helper,) = ahead.IDLE
    helper.send_signal(signal.SIGSTOP)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compile_in_helper(hash_places, ())
    assert helper.returncode == -signal.SIGKILL
    assert ahead.IDLE == []
    timer.join()


def test_it_compiles_where_helpers_do_not_start(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.end_idle()
    monkeypatch.setenv("PYTHONHOME", "/missing")  # so that they end
    assert [load.compiled for load in loads_of(lambda: anew(permute).code(()))] == [True]
    monkeypatch.setattr(sys, "executable", "/missing/python")
    assert [load.compiled for load in loads_of(lambda: anew(hash_places).code(()))] == [True]
    assert ahead.IDLE == []


def test_a_program_whose_kernels_are_loaded_together_runs(kept: Path) -> None:
    class Five(Program):
        """A program of kernels that this process has no machine code of."""

    program, numbers, out = Five(), np.array([1, 2]), np.zeros((4, 2))
    for place, (_, (ids, weights)) in enumerate(MANY):
        other, factors = anew(scale), np.full(2, 3 * place + 3, weights)
        program.add(other, numbers.astype(ids), factors, out[place].view() if weights == "float64" else factors)
    program.add(anew(add), 4, 5)
    assert program.run() == (9, 4)
    assert out.tolist() == [[0, 0], [2, 4], [0, 0], [4, 8]]


def test_a_program_that_ends_leaves_no_helper(kept: Path) -> None:
    body = f"{HASH}\nfrom graphfeed.ops.cpu.compiler import ahead\nprint(ahead.IDLE[0].pid)"
    pid = int(printed(body).split()[-1])
    assert subprocess.run(["ps", "-o", "pid=", "-p", str(pid)], check=False, capture_output=True).stdout == b""
