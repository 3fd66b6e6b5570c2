"""How every kernel is compiled, and the instructions that Numba lacks.

With Numba's setting NUMBA_DISABLE_JIT=1 nothing is compiled: kernels are plain Python then, which a debugger can step
through, and give the same results a thousand times as slowly.
"""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphfeed.ops.cpu import interpreted
from graphfeed.ops.cpu.kernel_cache import keep

PART: Any = None
"""The class of device functions, unless this release of Numba lacks what it needs."""
try:
    from graphfeed.ops.cpu.parts import Part
except Exception:  # whatever another release raises
    pass
else:
    PART = Part

SETTINGS: Any = numba.config
INTERPRETED = bool(SETTINGS.DISABLE_JIT)
OPTIONS: Any = {"nogil": True, "error_model": "numpy"} | ({"no_cfunc_wrapper": True} if PART else {})
"""Of kernels and what they call: all run without the interpreter lock, and none is called from C."""
AHEAD = 32
"""How many iterations ahead a loop prefetches a value that it reads by a random index.

Far enough for a read from memory to arrive meanwhile, and near enough for the value to be in the cache still. With 8,
neighbour sampling takes 1.36 times as long (ogbn-products shaped graph).
"""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call, keep the machine code on disk, and release the interpreter lock while it runs."""
    compiled: Any = numba.njit(**OPTIONS)(function)
    return interpreted.kernel(function) if INTERPRETED else keep(compiled)


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a part that kernels alone can call, into those kernels; LLVM may inline it."""
    if INTERPRETED:
        return function
    return PART(function, OPTIONS) if PART else numba.njit(**OPTIONS)(function)


def always_inline(function: Callable[..., Any]) -> Any:
    """Compile a part that is always inlined into its callers, for the inside of hot loops."""
    return numba.njit(**OPTIONS, inline="always")(function)


def instruction(generator: Callable[..., Any]) -> Any:
    """Make an instruction of a function that generates its code; without a compiler it is one of the same name."""
    return getattr(interpreted, generator.__name__) if INTERPRETED else intrinsic(generator)


@instruction
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of `array[index]`; the index must be an intp."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, flag(0), flag(1), flag(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


@instruction
def without_refcount(typing_context: Any, array: Any) -> Any:
    """Return the array without its reference count, which is valid for as long as the caller keeps the array.

    Numba counts references by atomic instructions, wherever an array is passed to a function or sliced. In LABOR's loop
    over columns they took 140 ns per column: mini-batches took 1.18 times as long (ogbn-arxiv shaped graph, fan-outs
    15, 10 and 5), or 1.28 times (ogbn-products).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), generate


@instruction
def lowest_bit(typing_context: Any, value: Any) -> Any:
    """Return the position of the lowest set bit of a uint64, which must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [arguments[0], ir.IntType(1)(1)])

    return types.int64(types.uint64), generate


@instruction
def count_bits(typing_context: Any, value: Any) -> Any:
    """Return how many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@instruction
def mark_below(typing_context: Any, values: Any, index: Any, limit: Any) -> Any:
    """Return which of the 32 values of a uint32 array from an index on are below a limit: a bit each, the lowest first.

    The index must be an intp and the limit a uint32. A SIMD comparison: LLVM makes none of a loop over loaded values,
    and with that loop LABOR's mini-batches take 1.1 (ogbn-products shaped graph) to 1.3 times as long (ogbn-arxiv).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        kind = ir.VectorType(ir.IntType(32), 32)
        vector = builder.load(builder.bitcast(builder.gep(view.data, [arguments[1]]), kind.as_pointer()), align=4)
        nothing = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(nothing, arguments[2], ir.IntType(32)(0))
        limits = builder.shuffle_vector(first, nothing, ir.Constant(kind, [0] * 32))
        marks = builder.bitcast(builder.icmp_unsigned("<", vector, limits), ir.IntType(32))
        return builder.zext(marks, ir.IntType(64))

    return types.uint64(values, index, types.uint32), generate


@instruction
def multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the high 64 bits of the product of two uint64: one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@instruction
def less_product(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return whether `a * b < c * d`, of uint64, in 128 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        left, up, right, down = (builder.zext(argument, wide) for argument in arguments)
        return builder.icmp_unsigned("<", builder.mul(left, up), builder.mul(right, down))

    return types.boolean(types.uint64, types.uint64, types.uint64, types.uint64), generate


@instruction
def copy_bytes(typing_context: Any, out: Any, to: Any, source: Any, start: Any, size: Any) -> Any:
    """Copy `size` bytes from `source[start]` to `out[to]`; the offsets must be intp, the arrays bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        places = []
        for array, offset in ((0, 1), (2, 3)):
            view = context.make_array(signature.args[array])(context, builder, arguments[array])
            places.append(builder.bitcast(builder.gep(view.data, [arguments[offset]]), byte))
        flag = ir.IntType(1)
        kind = ir.FunctionType(ir.VoidType(), [byte, byte, ir.IntType(64), flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.memcpy.p0.p0.i64")
        builder.call(function, [*places, arguments[4], flag(0)])
        return context.get_dummy_value()

    return types.void(out, to, source, start, size), generate


@instruction
def read_at(typing_context: Any, descriptor: Any, segments: Any, count: Any, start: Any) -> Any:
    """Call preadv: read from `start` of an open file into `count` pairs (address, size); return the bytes read or -1.

    The descriptor and the count must be int32, segments and start int64. The system's own symbol is linked by name,
    so that the machine code can be kept on disk.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[1])(context, builder, arguments[1])
        pairs = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        wide, narrow = ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(wide, [narrow, pairs.type, narrow, wide])
        function = cgutils.get_or_insert_function(builder.module, kind, "preadv")
        return builder.call(function, [arguments[0], pairs, arguments[2], arguments[3]])

    return types.int64(descriptor, segments, count, start), generate
