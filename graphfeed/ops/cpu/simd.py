"""One decision on many nodes at once, in vector instructions: LLVM has them for any machine, Numba alone does not.

A bit stands for a node, the lowest for the first.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphfeed.ops import random

LANES = 32
"""As many as fill four registers of AVX2, so that one waits for its product while the next begins."""
SHORT = ir.IntType(32)
SHORTS = ir.VectorType(SHORT, LANES)


def repeat(builder: Any, value: Any) -> Any:
    """Return a vector of one value."""
    first = builder.insert_element(ir.Constant(SHORTS, ir.Undefined), value, SHORT(0))
    return builder.shuffle_vector(first, ir.Constant(SHORTS, ir.Undefined), ir.Constant(SHORTS, [0] * LANES))


def short_bits(builder: Any, lower: Any, upper: Any, key: Any) -> Any:
    """Write the instructions of `random.short_bits`, of the halves of node ids; the upper may be None, for 0."""

    def constant(value: int) -> Any:
        return ir.Constant(SHORTS, [value] * LANES)

    def fold(bits: Any, shift: int) -> Any:
        return builder.xor(bits, builder.lshr(bits, constant(shift)))

    low, high = (builder.trunc(part, SHORT) for part in (key, builder.lshr(key, key.type(32))))
    bits = builder.xor(lower, repeat(builder, low))
    if upper is not None:
        bits = builder.add(bits, builder.mul(upper, constant(random.UPPER)))
    bits = builder.mul(fold(bits, 16), repeat(builder, builder.or_(high, SHORT(1))))
    return fold(builder.mul(fold(bits, 15), constant(random.LAST)), 15)


def mark(builder: Any, bits: Any, limit: Any) -> Any:
    """Write the instructions that turn what is up to a limit into marks."""
    small = builder.icmp_unsigned("<=", bits, repeat(builder, builder.trunc(limit, SHORT)))
    return builder.zext(builder.bitcast(small, ir.IntType(LANES)), ir.IntType(64))


@intrinsic
def mark_small(typing_context: Any, nodes: Any, index: Any, key: Any, limit: Any) -> Any:
    """Return which of the `LANES` nodes from `nodes[index]` on have short bits up to a limit.

    Key and limit must be uint64, the index an intp.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = signature.args[0].dtype.bitwidth
        kind = ir.VectorType(ir.IntType(width), LANES)
        place = builder.bitcast(builder.gep(view.data, [arguments[1]]), kind.as_pointer())
        lower, upper = builder.load(place, align=width // 8), None
        if width > SHORT.width:
            upper = builder.trunc(builder.lshr(lower, ir.Constant(kind, [32] * LANES)), SHORTS)
            lower = builder.trunc(lower, SHORTS)
        return mark(builder, short_bits(builder, lower, upper, arguments[2]), arguments[3])

    return types.uint64(nodes, index, types.uint64, types.uint64), generate


@intrinsic
def mark_small_from(typing_context: Any, node: Any, key: Any, limit: Any) -> Any:
    """Do the same for nodes of consecutive ids, the first a multiple of `LANES`; all arguments must be uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        node, key, limit = arguments
        lower = builder.add(repeat(builder, builder.trunc(node, SHORT)), ir.Constant(SHORTS, list(range(LANES))))
        upper = repeat(builder, builder.trunc(builder.lshr(node, node.type(32)), SHORT))
        return mark(builder, short_bits(builder, lower, upper, key), limit)

    return types.uint64(types.uint64, types.uint64, types.uint64), generate


@intrinsic
def mark_up_to(typing_context: Any, values: Any, limit: Any) -> Any:
    """Return which of the first `LANES` values of a uint32 array are up to a limit, which must be uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(view.data, SHORTS.as_pointer())
        return mark(builder, builder.load(place, align=4), arguments[1])

    return types.uint64(values, types.uint64), generate


@intrinsic
def count_marks(typing_context: Any, marks: Any) -> Any:
    """Return how many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def first_mark(typing_context: Any, marks: Any) -> Any:
    """Return the place of the lowest bit that is set, of a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [arguments[0], ir.IntType(1)(1)])

    return types.int64(types.uint64), generate
