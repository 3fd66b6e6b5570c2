"""Parts of kernels are compiled into the kernels that call them, and cost nothing more."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from graphfeed.ops.cpu import jit

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
"""


@pytest.fixture
def module(tmp_path: Path) -> Any:
    """Return a module of a kernel and its parts, of which nothing is compiled yet."""
    if jit.INTERPRETED:
        pytest.skip("kernels are plain Python")
    path = tmp_path / "sums.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("sums", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_machine_code(function: Any) -> bool:
    (compiled,) = function.overloads.values()
    engine = compiled.target_context.codegen()._engine
    return bool(engine.is_symbol_defined(compiled.fndesc.mangled_name))


def test_a_part_is_compiled_once_whatever_its_constants_and_to_no_machine_code_of_its_own(module: Any) -> None:
    assert module.compute(4) == 0 + 1 + 2 * (1 + 4 + 2) + 16
    assert len(module.add.overloads) == 2, "with the default, and without"
    assert has_machine_code(module.compute)
    assert not has_machine_code(module.square)


def test_a_kernel_that_was_kept_runs_without_its_parts(module: Any) -> None:
    wanted = module.compute(5)
    again = importlib.util.module_from_spec(module.__spec__)
    module.__spec__.loader.exec_module(again)
    assert again.compute(5) == wanted
    assert not again.square.overloads


@pytest.mark.parametrize("is_compiled", [False, True])
def test_python_cannot_call_a_part(module: Any, is_compiled: bool) -> None:
    if is_compiled:
        module.compute(3)
    with pytest.raises(TypeError, match="square is a part of kernels: call it from one"):
        module.square(3)
