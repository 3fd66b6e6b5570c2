"""Functions that kernels call: compiled into those kernels, and never on their own.

Numba compiles each function that a kernel calls as if programs called it as well: with a wrapper for Python and one for
C, to machine code of its own, and anew for every constant among its arguments. Nothing calls that code: a kernel has
copies of its parts. Without it, the kernel of neighbour sampling compiles in 0.6 of the time.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Of kernels and their parts: all run without the interpreter lock, and none is called from C."""


class PartCodegen:
    """The code generator of a part: it optimises what kernels link in, and makes no machine code."""

    def __init__(self, codegen: Any) -> None:
        self.codegen = codegen

    def __getattr__(self, name: str) -> Any:
        """Do all else as kernels' own."""
        return getattr(self.codegen, name)

    def _add_module(self, module: Any) -> None:
        """Load nothing."""

    def _scan_and_fix_unresolved_refs(self, module: Any) -> None:
        """Resolve nothing: no part calls itself."""

    def set_env(self, name: str, environment: Any) -> None:
        """Set nothing, since nothing is loaded; no kernel reads it."""


class PartCompiler(Compiler):
    """Compiles a function for such a library."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile a function."""
        self.state.library = JITCodeLibrary(PartCodegen(self.state.targetctx.codegen()), function.__qualname__)
        return super().compile_extra(function)


class Part(CPUDispatcher):
    """A function that kernels alone can call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        options = {**OPTIONS, "nopython": True, "no_cpython_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=PartCompiler)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Take constants for what they are of: LLVM sees them anyway, where it inlines the part."""
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(types.unliteral(kind) for kind in args), plain)

    def add_overload(self, compiled: Any) -> None:
        """Keep what kernels link in where Python finds nothing to call."""
        self.overloads[tuple(compiled.signature.args)] = compiled

    def _compile_for_args(self, *_: Any, **__: Any) -> Any:
        """Refuse a call from Python."""
        raise TypeError(f"{self.py_func.__name__} is a part of kernels: call it from one")
