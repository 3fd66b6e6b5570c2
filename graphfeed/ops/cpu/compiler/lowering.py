"""Code generation for `graphfeed.ops.cpu.instructions`, and for the arguments of kernels."""

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    type_callable,
)

from graphfeed.ops.cpu import instructions
from graphfeed.ops.cpu.compiler import machine, program

WORD, BYTE, FLAG, INT32 = ir.IntType(64), ir.IntType(8), ir.IntType(1), ir.IntType(32)
WILL_NEED = 3
"""Value of `MADV_WILLNEED`, the same on all systems."""
WORDS = types.CPointer(types.int64)

Arguments = list[Any]
Generate = Callable[[Any, Any, Any, Arguments], Any]
"""Function that generates code, given Numba's context, LLVM's builder, the signature, and the argument values."""


def instruction(function: Any, result: Any, *given: Any) -> Callable[[Generate], Generate]:
    """Decorate a function that generates the code by which Numba compiles calls of an instruction."""

    def register(generate: Generate) -> Generate:
        def find_type(*found: Any) -> Any:
            # Arguments are converted to the given types; None leaves the type unchanged.
            return result(*(wanted or own for wanted, own in zip(given, found, strict=True)))

        find_type.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        type_callable(function)(lambda _context: find_type)

        lower_builtin(function, types.VarArg(types.Any))(generate)
        return generate

    return register


def array_address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_helper(builder, kind, array).data
    return builder.bitcast(builder.gep(data, [index]), BYTE.as_pointer())


def external(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Declare a function of LLVM or the C library, and generate a call."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


@instruction(instructions.prefetch, types.void, None, types.intp)
def generate_prefetch(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    address = array_address(context, builder, signature.args[0], *arguments)
    # For reading (0), with low locality (1), of data (1).
    external(builder, "llvm.prefetch.p0", ir.VoidType(), address, INT32(0), INT32(1), INT32(1))
    return context.get_dummy_value()


@instruction(instructions.lowest_bit, types.int64, types.uint64)
def generate_lowest_bit(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    # The flag means that the value is never 0: LLVM may return anything for it.
    return external(builder, "llvm.cttz.i64", WORD, arguments[0], FLAG(1))


@instruction(instructions.count_bits, types.int64, types.uint64)
def generate_count_bits(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    return builder.ctpop(arguments[0])


@instruction(instructions.square_root, lambda kind: kind(kind), None)
def generate_square_root(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    kind = arguments[0].type
    return external(builder, f"llvm.sqrt.{'f32' if kind == ir.FloatType() else 'f64'}", kind, arguments[0])


@instruction(instructions.lanes_below, types.uint64, None, types.intp, types.uint32)
def generate_mark_below(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    """Generate one comparison of all lanes of a vector."""
    values, index, limit = arguments
    kind = ir.VectorType(INT32, 32)
    address = array_address(context, builder, signature.args[0], values, index)
    vector = builder.load(builder.bitcast(address, kind.as_pointer()), align=4)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, limit, INT32(0))
    limits = builder.shuffle_vector(first, nothing, ir.Constant(kind, [0] * 32))
    marks = builder.bitcast(builder.icmp_unsigned("<", vector, limits), INT32)
    return builder.zext(marks, WORD)


@instruction(instructions.multiply_high, types.uint64, types.uint64, types.uint64)
def generate_multiply_high(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    wide = ir.IntType(128)
    left, right = (builder.zext(argument, wide) for argument in arguments)
    # A single instruction on most processors.
    return builder.trunc(builder.lshr(builder.mul(left, right), wide(64)), WORD)


@instruction(instructions.less_product, types.boolean, *[types.uint64] * 4)
def generate_less_product(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    left, up, right, down = (builder.zext(argument, ir.IntType(128)) for argument in arguments)
    return builder.icmp_unsigned("<", builder.mul(left, up), builder.mul(right, down))


@instruction(instructions.copy_bytes, types.void, None, types.intp, None, types.intp, types.int64)
def generate_copy_bytes(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    out, to, source, start, size = arguments
    target = array_address(context, builder, signature.args[0], out, to)
    origin = array_address(context, builder, signature.args[2], source, start)
    # The memory regions don't overlap.
    external(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), target, origin, size, FLAG(0))
    return context.get_dummy_value()


@instruction(instructions.load_word, types.uint64, None, types.intp)
def generate_load_word(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    address = array_address(context, builder, signature.args[0], *arguments)
    # The address may be unaligned.
    return builder.load(builder.bitcast(address, WORD.as_pointer()), align=1)


@instruction(instructions.has_crc32c, types.boolean)
def generate_has_crc32c(_context: Any, _builder: Any, _signature: Any, _arguments: Arguments) -> Any:
    return FLAG(int("+sse4.2" in machine.processor()[1].split(",")))


@instruction(instructions.add_to_crc32c, types.uint64, types.uint64, types.uint64)
def generate_add_to_crc32c(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    return external(builder, "llvm.x86.sse42.crc32.64.64", WORD, *arguments)


@instruction(instructions.interface_address, types.int64, None)
def generate_address_of(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    return builder.ptrtoint(array_address(context, builder, signature.args[0], arguments[0], WORD(0)), WORD)


@instruction(instructions.read_at, types.int64, types.int32, None, types.int32, types.int64)
def generate_read_at(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
    descriptor, segments, count, start = arguments
    pairs = array_address(context, builder, signature.args[1], segments, WORD(0))
    # The system's function, linked by its name.
    return external(builder, "preadv", WORD, descriptor, pairs, count, start)


@instruction(instructions.will_need, types.void, types.int64, types.int64)
def generate_will_need(context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    address, size = arguments
    # This is only advice, so failures are ignored.
    external(builder, "madvise", INT32, builder.inttoptr(address, BYTE.as_pointer()), size, INT32(WILL_NEED))
    return context.get_dummy_value()


@instruction(instructions.launch_kernel, types.int64, *[types.int64] * 6)
def generate_launch(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    launch, function, blocks, threads, stream, packed = arguments
    number, one = (lambda word: builder.trunc(word, INT32)), INT32(1)
    # Addresses are passed like words.
    given = [function, number(blocks), one, one, number(threads), one, one, INT32(0), stream, WORD(0), packed]
    kind = ir.FunctionType(INT32, [value.type for value in given])
    return builder.sext(builder.call(builder.inttoptr(launch, kind.as_pointer()), given), WORD)


@instruction(program.call_code, types.int64, types.int64, types.int64)
def generate_call(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
    function, block = arguments
    kind = ir.FunctionType(WORD, [WORD.as_pointer()])
    return builder.call(builder.inttoptr(function, kind.as_pointer()), [builder.inttoptr(block, WORD.as_pointer())])


class BlockType(types.NamedTuple):
    """A named tuple of arrays, represented by the address of its words. Arrays are loaded from there when used."""

    def __init__(self, kind: type, arrays: dict[str, types.Array]) -> None:
        # It is passed to a function as one pointer, where a tuple of ten arrays would be seventy values.
        super().__init__(tuple(arrays.values()), kind)
        self.arrays, self.places, self.words = arrays, dict[str, int](), 0
        for name, own in arrays.items():
            self.places[name] = self.words
            self.words += 1 + own.ndim


register_model(BlockType)(models.OpaqueModel)


@lower_getattr_generic(BlockType)  # type: ignore[untyped-decorator]
def generate_attribute(context: Any, builder: Any, kind: BlockType, block: Any, name: str) -> Any:
    words = builder.bitcast(block, WORD.as_pointer())
    return array_struct(context, builder, kind.arrays[name], words, WORD(kind.places[name]))


@intrinsic
def number_at(_typing_context: Any, _words: Any, _place: Any, kind: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Arguments) -> Any:
        return word_at(builder, arguments[0], arguments[1])

    return kind.dtype(WORDS, types.intp, kind), generate


@intrinsic
def array_at(_typing_context: Any, _words: Any, _place: Any, kind: Any) -> Any:
    """Return an array, given the index of the word where its address and sizes begin."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
        return array_struct(context, builder, signature.return_type, *arguments[:2])

    return kind.instance_type(WORDS, types.intp, kind), generate


@intrinsic
def block_at(_typing_context: Any, _words: Any, _place: Any, kind: Any) -> Any:
    """Return a block, given the index of the word with its address."""

    def generate(_context: Any, builder: Any, signature: Any, arguments: Arguments) -> Any:
        words = builder.bitcast(arguments[0], BYTE.as_pointer().as_pointer())
        address = builder.load(builder.gep(words, [arguments[1]]))
        never_changes(builder, address)
        # Allows LLVM to hoist conditional loads from the block out of loops.
        size = builder.module.add_metadata([WORD(8 * signature.return_type.words)])
        address.set_metadata("dereferenceable", size)
        return address

    return kind.instance_type(WORDS, types.intp, kind), generate


def array_struct(context: Any, builder: Any, kind: Any, words: Any, place: Any) -> Any:
    """Return an array without reference counting, given the index of the word where its address and sizes begin."""
    shape = [word_at(builder, words, builder.add(place, WORD(1 + axis))) for axis in range(kind.ndim)]
    step = WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides, count = [step], shape[0]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
        count = builder.mul(count, size)
    model = context.data_model_manager[kind]
    parts = {
        "data": builder.inttoptr(word_at(builder, words, place), context.get_data_type(kind.dtype).as_pointer()),
        "shape": pack_words(builder, ir.ArrayType(WORD, kind.ndim), shape),
        "strides": pack_words(builder, ir.ArrayType(WORD, kind.ndim), strides),
        "itemsize": step,
        "nitems": count,
        "meminfo": ir.Constant(BYTE.as_pointer(), None),
        "parent": ir.Constant(BYTE.as_pointer(), None),
    }
    array = ir.Constant(context.get_value_type(kind), ir.Undefined)
    for name, value in parts.items():
        array = model.set(builder, array, value, name)
    return array


def word_at(builder: Any, words: Any, place: Any) -> Any:
    word = builder.load(builder.gep(words, [place]))
    never_changes(builder, word)
    return word


def never_changes(builder: Any, load: Any) -> None:
    """Mark a load as invariant, so that LLVM loads the value only once, whatever a loop writes to."""
    load.set_metadata("invariant.load", builder.module.add_metadata([]))


def pack_words(builder: Any, kind: Any, values: Arguments) -> Any:
    packed = ir.Constant(kind, ir.Undefined)
    for place, value in enumerate(values):
        packed = builder.insert_value(packed, value, place)
    return packed
