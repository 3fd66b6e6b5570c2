"""Compilation of a kernel for a choice of dtypes into an object file, by Numba. Imported only to compile.

All functions are inlined into a C callback, so that no error codes of Numba are checked and no references counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.extending import register_jitable

from graphfeed.ops.cpu.compiler import lowering
from graphfeed.ops.cpu.compiler.kernel import DEVICE_FUNCTIONS, Kernel
from graphfeed.ops.cpu.compiler.machine import target_machine
from graphfeed.ops.cpu.compiler.signature import ArrayType, fields_of, is_tuple

OPTIONS: Any = {"error_model": "numpy", "forceinline": True}
"""Division by 0 raises no error, and every function is inlined."""
LINKED = {"memcpy", "memset", "memmove", "preadv", "madvise", "floor", "sqrt"}
"""C library functions that machine code may call."""
SETTINGS = {
    "BOUNDSCHECK": 0,  # kernels can't raise
    "DEBUGINFO_DEFAULT": 0,
    "EXTEND_VARIABLE_LIFETIMES": 0,
    "LOOP_VECTORIZE": 1,
    "OPT": type(numba.config.OPT)(3),  # type: ignore[attr-defined]
    "SLP_VECTORIZE": 0,
}
"""Numba's settings that affect machine code. The program's own settings, such as NUMBA_OPT=0, don't apply."""


@contextmanager
def own_settings() -> Iterator[None]:
    # Numba has one configuration per process. Other threads that compile meanwhile get these settings, too.
    before = {name: getattr(numba.config, name) for name in SETTINGS}
    vars(numba.config).update(SETTINGS)
    try:
        yield
    finally:
        vars(numba.config).update(before)


def compile_kernel(kernel: Kernel, dtypes: tuple[str, ...], symbol: str) -> bytes:
    """Return the object file of a function with the given name. Only one thread may call this at a time."""
    # A copy, because other threads may import more functions in the meantime.
    for function, is_known in list(DEVICE_FUNCTIONS.items()):
        if not is_known:
            register_jitable(**OPTIONS)(function)
            DEVICE_FUNCTIONS[function] = True
    with own_settings():
        callback = numba.cfunc(types.int64(lowering.WORDS), **OPTIONS)(make_entry(kernel, dtypes))
    module = binding.parse_assembly(callback.inspect_llvm())
    module.verify()
    for function in module.functions:
        if function.name == callback.native_name:
            function.name = symbol
        elif not function.is_declaration:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    foreign = {function.name for function in module.functions if function.is_declaration} - LINKED
    foreign = {name for name in foreign if not name.startswith("llvm.")}
    if foreign:
        raise NotImplementedError(f"{kernel.name} needs {sorted(foreign)}: kernels can't create arrays or raise errors")
    code: bytes = target_machine().emit_object(module)
    return code


def make_entry(kernel: Kernel, dtypes: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function that reads the arguments of a kernel from a block of words, and calls the kernel."""
    chosen = {variable.name: dtype for variable, dtype in zip(kernel.signature.variables(), dtypes, strict=True)}
    # Numba inlines the kernel, rather than LLVM, so that it is compiled only once, and not for Python as well.
    names: dict[str, Any] = {"kernel": numba.njit(inline="always", **OPTIONS)(kernel.function)}
    names.update(vars(lowering))
    place, given = 0, []
    for name, kind in kernel.signature.parameters:
        if isinstance(kind, ArrayType):
            names[f"type_of_{name}"], take, size = numba_type(kind, chosen), "array_at", 1 + kind.ndim
        elif is_tuple(kind):
            arrays = {field: numba_type(part, chosen) for field, part in fields_of(kind)}
            names[f"type_of_{name}"], take, size = lowering.BlockType(kind, arrays), "block_at", 1
        else:
            names[f"type_of_{name}"] = types.uint64 if kind is np.uint64 else types.int64
            take, size = "number_at", 1
        given.append(f"{take}(words, {place}, type_of_{name})" + (" != 0" if kind is bool else ""))
        place += size
    call = f"kernel({', '.join(given)})"
    body = f"{call}; return 0" if kernel.signature.returns is None else f"return {call}"
    entry = "_".join([*kernel.name.split("."), *dtypes])
    exec(f"def {entry}(words): {body}", names)
    return names[entry]  # type: ignore[no-any-return]


def numba_type(kind: ArrayType, chosen: dict[str, str]) -> Any:
    return types.Array(numba.from_dtype(np.dtype(kind.dtype_in(chosen))), kind.ndim, "C")
