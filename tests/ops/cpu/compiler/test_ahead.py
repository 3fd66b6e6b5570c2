"""Other processes compile kernels: all of them ahead, or some of those that a pipeline waits for."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import ahead, folders
from graphfeed.ops.cpu.compiler.ahead import all_kernels, compile_all, helped
from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.program import FEW, Program, load_all
from graphfeed.ops.cpu.compiler.store import is_kept
from tests.ops.cpu.compiler.bare import printed
from tests.ops.cpu.compiler.kernels import add, anew, double, scale, was_compiled
from tests.scripts import REPOSITORY
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


MODULE = "tests.ops.cpu.compiler.kernels"


FEW_JOBS = [(MODULE, "add", []), (MODULE, "double", []), (MODULE, "scale", ["int32", "float32"])]


MANY = [(anew(scale), dtypes) for dtypes in scale.signature.variants()]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let other processes find the kernels of tests."""
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{tmp_path}")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, kept: Path) -> list[Any]:
    """Return all kernels that there are: a few."""
    few = [*FEW_JOBS]
    monkeypatch.setattr(ahead, "all_kernels", lambda: few)
    return few


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, kept: Path) -> Iterator[list[Any]]:
    """Return the processes that are started to compile; there is a core for one."""
    found: list[Any] = []
    start = ahead.start

    def note(**streams: Any) -> Any:
        found.append(start(**streams))
        return found[-1]

    monkeypatch.setattr(ahead, "start", note)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    yield found
    assert all(process.returncode is not None for process in found), "each has ended, and was waited for"


def test_all_kernels_of_the_package_are_listed_once_for_each_choice_of_dtypes() -> None:
    listed = [(module, name, tuple(dtypes)) for module, name, dtypes in all_kernels()]
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
    assert {dtypes for *kernel, dtypes in listed if kernel == [module, "gather_words"]} == {("uint32",), ("uint64",)}


def test_none_of_their_modules_imports_torch() -> None:
    body = "from graphfeed.ops.cpu.compiler.ahead import all_kernels\nall_kernels()\nprint('torch' in sys.modules)"
    assert printed(body) == "False\n"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_kernel_can_be_compiled() -> None:
    loads = list(compile_all())
    assert len(loads) == len({(load.kernel, load.signature) for load in loads}) == len(all_kernels())


def test_other_processes_compile_all_kernels_or_find_them(jobs: list[Any]) -> None:
    expected = {(f"{MODULE}.{name}", ", ".join(dtypes)) for _, name, dtypes in jobs}
    for compiled in (True, False):
        loads = list(compile_all(2))
        assert {(load.kernel, load.signature) for load in loads} == expected
        assert all(load.compiled is compiled and load.seconds > 0 for load in loads)
    assert not was_compiled(double)


def failure(wrong: list[Any], jobs: list[Any]) -> str:
    """Return what is said of kernels that can't be compiled, once the others are there."""
    jobs[1:1] = wrong
    loads = compile_all(1)
    assert [next(loads).kernel for _ in FEW_JOBS] == [f"{MODULE}.{name}" for _, name, _ in FEW_JOBS]
    with pytest.raises(RuntimeError, match=f"^{len(wrong)} kernels could not be compiled: ") as error:
        next(loads)
    return str(error.value)


def test_kernels_that_cannot_be_compiled_are_named_once_the_others_are_there(jobs: list[Any]) -> None:
    wrong: list[Any] = [(MODULE, "make_array", []), (MODULE, "missing", []), ("missing", "kernel", [])]
    said = failure(wrong, jobs).split("; ")
    assert re.search(f"{MODULE}.make_array for .*: NotImplementedError: {MODULE}.make_array needs", said[0])
    assert re.match(f"{MODULE}.missing for .*: AttributeError: ", said[1])
    assert re.match("missing.kernel for .*: ModuleNotFoundError: No module named 'missing'", said[2])


def test_a_kernel_whose_process_ends_is_named_and_another_process_compiles_the_rest(
    jobs: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos._exit(1)\n")
    assert failure([("deadly", "kernel", [])], jobs).endswith("the process that compiled deadly.kernel ended")


def test_where_no_process_can_be_started_that_is_said(jobs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/missing/python")
    jobs += FEW_JOBS
    with pytest.raises(RuntimeError, match=r"^6 kernels could not be compiled: .*; .*; [^;]*\.\.\.$"):
        next(compile_all(2))


def test_a_pipeline_that_lacks_kernels_is_helped_from_the_last_one_on(started: list[Any]) -> None:
    with helped(MANY):
        wait_until(lambda: is_kept(*MANY[-1]))
        assert len(started) == 1
    assert not was_compiled(*MANY[-1])


def test_it_is_not_helped_where_nothing_is_kept(
    started: list[Any], places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "is_writable", lambda folder: False)
    with helped(MANY):
        assert started == []


def test_it_goes_on_where_no_process_can_be_started(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/missing/python")
    load_all(kernel_dtypes := [(anew(scale), dtypes) for _, dtypes in MANY])
    assert all(dtypes in kernel.codes for kernel, dtypes in kernel_dtypes)


def test_few_kernels_are_compiled_without_help(started: list[Any]) -> None:
    load_all([(anew(scale), dtypes) for _, dtypes in MANY[:FEW]])
    load_all([(anew(scale), dtypes) for _, dtypes in MANY])
    assert started == [], "few are missing"


def test_a_program_whose_kernels_others_compile_runs(started: list[Any]) -> None:
    class Five(Program):
        """A program of kernels that this process has no machine code of."""

    program, numbers, out = Five(), np.array([1, 2]), np.zeros((4, 2))
    for place, (_, (ids, weights)) in enumerate(MANY):
        other, factors = anew(scale), np.full(2, 3 * place + 3, weights)
        program.add(other, numbers.astype(ids), factors, out[place].view() if weights == "float64" else factors)
    program.add(anew(add), 4, 5)
    assert program.run() == (9, 4)
    assert len(started) == 1
    assert out.tolist() == [[0, 0], [2, 4], [0, 0], [4, 8]]
