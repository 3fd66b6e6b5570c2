"""Functions that kernels call: compiled into those kernels, and never on their own.

Numba compiles each function that a kernel calls as if programs called it as well: with a wrapper for Python and one for
C, to machine code of its own, and anew for every constant among its arguments. Nothing calls that code: a kernel has
copies of its parts. Without it, the kernel of neighbour sampling compiles in 0.6 of the time.

Numba has no setting for it, so this module overrides what it does inside. A release of Numba may do it in another way:
then this module can't be imported, or a part doesn't compile. Parts are compiled as all functions are in such a case,
which takes longer and gives the same results.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen, RuntimeLinker
from numba.core.compiler import Compiler
from numba.core.errors import NumbaError, UnsupportedError
from numba.core.registry import CPUDispatcher


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
        """Resolve nothing: a function that calls itself needs that, and its machine code."""
        if any(variable.name.startswith(RuntimeLinker.PREFIX) for variable in module.global_variables):
            raise UnsupportedError(f"{module.name} is a part of kernels: it can't call itself, nor through others")

    def set_env(self, name: str, environment: Any) -> None:
        """Set nothing, since nothing is loaded; `kernel_cache.py` does, once a kernel is."""


class PartCompiler(Compiler):
    """Compiles a function for such a library."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile a function."""
        if Part.is_known:
            codegen = PartCodegen(self.state.targetctx.codegen())
            self.state.library = JITCodeLibrary(codegen, function.__qualname__)
        return super().compile_extra(function)


class Part(CPUDispatcher):
    """A function that kernels alone can call."""

    is_known = True
    """Whether this Numba has compiled all parts so far in the way that this module knows."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        options = {**options, "nopython": True, "no_cpython_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=PartCompiler)

    def __reduce__(self) -> Any:
        """Pickle it by name: whoever unpickles it has the package."""
        return self.py_func.__qualname__

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Take constants for what they are of: LLVM sees them anyway, where it inlines the part."""
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(types.unliteral(kind) for kind in args), plain)

    def compile(self, sig: Any) -> Any:
        """Compile it for kernels; where Numba does that in another way than this module knows, as any function."""
        try:
            return super().compile(sig)
        except NumbaError:
            raise
        except Exception:
            if not Part.is_known:
                raise
            Part.is_known = False
            return super().compile(sig)

    def add_overload(self, compiled: Any) -> None:
        """Keep what kernels link in where Python finds nothing to call."""
        self.overloads[tuple(compiled.signature.args)] = compiled

    def _compile_for_args(self, *_: Any, **__: Any) -> Any:
        """Refuse a call from Python."""
        raise TypeError(f"{self.py_func.__name__} is a part of kernels: call it from one")


MISSING = {"_add_module", "_scan_and_fix_unresolved_refs", "set_env"} - set(dir(JITCPUCodegen))
MISSING |= {"no_cfunc_wrapper", "no_cpython_wrapper"} - set(dir(CPUDispatcher.targetdescr.options))
if MISSING:
    raise ImportError(f"this Numba lacks {MISSING}")
Part(lambda: None, {})  # raises where Numba wants other arguments
