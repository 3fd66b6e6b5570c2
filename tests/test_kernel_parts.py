"""Parts of kernels are compiled into the kernels that call them, and cost nothing more."""

import importlib
import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from graphfeed.ops.cpu import jit, parts
from graphfeed.ops.cpu.structure import induce_trees
from tests.scripts import run

SOURCE = """
from graphfeed.ops.cpu.jit import device_function, kernel

@device_function
def square(number):
    return number * number

@device_function
def add(left, right, more=0):
    return left + right + more

@kernel
def compute(number):
    total = 0
    for term in range(2):
        total = add(total, term) + add(1, number, more=2)
    return total + square(number)

@device_function
def factorial(number):
    return number * factorial(number - 1) if number > 1 else 1

@kernel
def count_orders(number):
    return factorial(number)

@device_function
def is_even(number):
    return is_odd(number - 1) if number > 0 else True

@device_function
def is_odd(number):
    return is_even(number - 1) if number > 0 else False

@kernel
def count_even(number):
    return is_even(number)

@device_function
def check(number):
    print("checks", number)
    if number < 0:
        raise ValueError("negative", number)
    return number

@kernel
def check_one(number):
    return check(number)

@kernel
def check_another(number):
    return check(number) + 1
"""
WANTED = 0 + 1 + 2 * (1 + 4 + 2) + 16
"""Of `compute(4)`."""


def load(path: Path) -> Any:
    """Return the module in a file, as if it were imported for the first time."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file with kernels and their parts."""
    if jit.INTERPRETED:
        pytest.skip("kernels are plain Python")
    path = tmp_path / "sums.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def module(source: Path) -> Any:
    """Return a module of kernels and their parts, of which nothing is compiled yet."""
    return load(source)


def has_machine_code(function: Any) -> bool:
    (compiled,) = function.overloads.values()
    engine = compiled.target_context.codegen()._engine
    return bool(engine.is_symbol_defined(compiled.fndesc.mangled_name))


def test_a_part_is_compiled_once_whatever_its_constants_and_to_no_machine_code_of_its_own(module: Any) -> None:
    assert module.compute(4) == WANTED
    assert len(module.add.overloads) == 2, "with the default, and without"
    assert has_machine_code(module.compute)
    assert not has_machine_code(module.square)


def test_a_kernel_that_was_kept_runs_without_its_parts(module: Any) -> None:
    wanted = module.compute(5)
    again = load(Path(module.__file__))
    assert again.compute(5) == wanted
    assert not again.square.overloads


@pytest.mark.parametrize("is_compiled", [False, True])
def test_python_cannot_call_a_part(module: Any, is_compiled: bool) -> None:
    if is_compiled:
        module.compute(3)
    with pytest.raises(TypeError, match="square is a part of kernels: call it from one"):
        module.square(3)


@pytest.mark.parametrize("name", ["count_orders", "count_even"])
def test_a_part_that_calls_itself_is_refused(module: Any, name: str) -> None:
    with pytest.raises(Exception, match="is a part of kernels: it can't call itself, nor through others"):
        getattr(module, name)(5)


PRINTING = """
from sums import check_another, check_one
print(check_one(1), check_another(2))
try:
    check_one(-1)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_part_can_print_and_raise_where_it_was_compiled_and_where_it_was_loaded(source: Path) -> None:
    for _ in range(2):
        done = run("-c", f"import sys; sys.path.append({str(source.parent)!r})" + PRINTING, seconds=60)
        assert done.stdout.split("\n") == ["checks 1", "checks 2", "1 3", "checks -1", "('negative', -1)", ""]


def test_parts_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(induce_trees.find_slot)) is induce_trees.find_slot


@pytest.mark.parametrize("name", ["numba.core.registry.CPUDispatcher", "numba.core.codegen.JITCPUCodegen.set_env"])
def test_without_what_parts_need_of_numba_they_are_functions(
    name: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "graphfeed.ops.cpu.parts")
        patch.delattr(name)
        other = load(Path(jit.__file__))
    assert other.PART is None
    monkeypatch.setitem(sys.modules, jit.__name__, other)
    module = load(source)
    assert module.compute(4) == WANTED
    assert module.square(3) == 9


def test_parts_that_numba_cannot_compile_so_are_compiled_as_functions_are(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(codegen: Any, name: str) -> Any:
        raise AttributeError(f"no library for {name} and {codegen}")

    monkeypatch.setattr(parts.Part, "is_known", True)  # afterwards, too
    monkeypatch.setattr(parts, "JITCodeLibrary", refuse)
    assert module.compute(4) == WANTED
    assert has_machine_code(module.square)
    with pytest.raises(TypeError, match="call it from one"):
        module.square(3)
