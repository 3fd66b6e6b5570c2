from typing import Any

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler.compile import compile_kernel
from graphfeed.ops.cpu.compiler.kernel import CALL, DEVICE_FUNCTIONS, Kernel
from graphfeed.ops.cpu.compiler.machine import link
from graphfeed.ops.cpu.jit import Int64s, device_function, kernel
from tests.ops.cpu.compiler.bare import printed
from tests.ops.cpu.compiler.kernels import divide, double, make_array, scale

COMPILE = """
import hashlib
import numba
from graphfeed.ops.cpu.compiler.compile import compile_kernel
from tests.ops.cpu.compiler import kernels
if "interpreted" in sys.argv:
    numba.config.DISABLE_JIT = True
for kernel, dtypes in ((kernels.walk, ("int32",)), (kernels.scale, ("int64", "float32"))):
    print(hashlib.sha256(compile_kernel(kernel, dtypes)[1]).hexdigest())
"""
SETTINGS = ("BOUNDSCHECK", "DEBUGINFO", "EXTEND_VARIABLE_LIFETIMES", "SLP_VECTORIZE")


@pytest.mark.slow
def test_settings_of_numba_do_not_change_machine_code() -> None:
    others = dict.fromkeys([f"NUMBA_{name}" for name in SETTINGS], "1")
    expected = printed(COMPILE)
    assert len(expected.split()) == 2
    assert printed(COMPILE, NUMBA_OPT="max") == expected
    assert printed(COMPILE, "interpreted", NUMBA_OPT="0", NUMBA_LOOP_VECTORIZE="0", **others) == expected


def test_the_settings_of_the_program_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba  # noqa: PLC0415, TID251

    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    before = {name: value for name, value in vars(numba.config).items() if name.isupper()}
    compile_kernel(double, ())
    with pytest.raises(NotImplementedError):
        compile_kernel(make_array, ())
    assert {name: value for name, value in vars(numba.config).items() if name.isupper()} == before


def test_machine_code_calls_nothing_of_numba_s() -> None:
    symbol, code = compile_kernel(scale, ("int32", "float64"))
    assert symbol.startswith("tests.ops.cpu.compiler.kernels.scale.int32-float64.")
    assert symbol.encode() in code
    assert b"NRT_" not in code
    assert b"numba_" not in code


@kernel
def refuse(number: int) -> int:
    """Do what kernels can't."""
    if number < 0:
        raise ValueError("negative")
    return number


@pytest.mark.parametrize("wrong", [make_array, refuse])
def test_what_needs_numba_when_it_runs_is_refused_by_name(wrong: Kernel) -> None:
    with pytest.raises(NotImplementedError, match=rf"{wrong.name} needs \['.*'\]: kernels make no arrays and raise "):
        wrong(3)
    assert wrong.codes == {}


@pytest.mark.parametrize(("left", "right"), [(7, -2), (-7, 2), (1, 0)])
def test_a_division_raises_nothing(left: int, right: int) -> None:
    out = np.ones((2, 1), np.int64)
    divide(left, right, out[0])
    assert out[0] == (left // right if right else 0)


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
