"""How every kernel is compiled, and the prefetch instruction that Numba lacks."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from graphfeed.ops import random

if sys.platform != "win32":
    import fcntl

AHEAD = 32
"""How many iterations ahead a loop prefetches a value that it reads by a random index.

Far enough for a read from memory to arrive meanwhile, and near enough for the value to be in the cache still. With 8,
neighbour sampling takes 1.36 times as long (ogbn-products shaped graph).
"""
PARTS = (*sorted(Path(__file__).parent.rglob("*.py")), Path(random.__file__))
SOURCES = hashlib.blake2b(b"".join(path.read_bytes() for path in PARTS)).digest()
"""Stands for the source of all kernels."""
WAIT_SECONDS = 120.0
"""How long a process waits for another that compiles the same kernel, before it compiles the kernel as well."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call, keep the machine code on disk, and release the interpreter lock while it runs."""
    compiled: Any = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    # By itself, Numba reuses machine code while the kernel's own file is unchanged, whatever became of its parts.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = SOURCES
        share(compiled, cache_file)
    return compiled


def share(compiled: Any, cache_file: Any) -> None:
    """Let processes that start together compile a kernel once, not once each.

    Numba lets all of them write, under equal numbers: the index of one may come to name what another wrote.
    """
    index = Path(cache_file._index_path)
    compile_or_load, load, save = compiled.compile, cache_file.load, cache_file.save

    def compile_in_turn(signature: Any) -> Any:
        types_lock = index.with_suffix(f".{crc32(repr(signature).encode()):08x}.lock")
        # In this order, since the thread that holds the second lock may need another thread to compile.
        with global_compiler_lock, only_one(types_lock):
            return compile_or_load(signature)

    def load_whole(key: Any) -> Any:
        with only_one(index.with_suffix(".lock")):
            return load(key)

    def save_whole(key: Any, data: Any) -> None:
        with only_one(index.with_suffix(".lock")):
            save(key, data)

    compiled.compile, cache_file.load, cache_file.save = compile_in_turn, load_whole, save_whole


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Let one process in at a time, if the file system has locks; a lock ends with the process that holds it."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # somebody else's folder: its files are read, and none are written
        yield
        return
    try:
        give_up = time.monotonic() + WAIT_SECONDS
        with suppress(OSError):  # the file system has no locks
            while not locked(descriptor) and time.monotonic() < give_up:
                time.sleep(0.01)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor, too
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Lock an open file, unless another process has locked it; return whether that worked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a part that kernels call; LLVM may inline it."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def always_inline(function: Callable[..., Any]) -> Any:
    """Compile a part that is always inlined into its callers, for the inside of hot loops."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)


@intrinsic
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


@intrinsic
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


@intrinsic
def lowest_bit(typing_context: Any, value: Any) -> Any:
    """Return the position of the lowest set bit of a uint64, which must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [arguments[0], ir.IntType(1)(1)])

    return types.int64(types.uint64), generate


@intrinsic
def count_bits(typing_context: Any, value: Any) -> Any:
    """Return how many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
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


@intrinsic
def multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the high 64 bits of the product of two uint64: one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def less_product(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return whether `a * b < c * d`, of uint64, in 128 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        left, up, right, down = (builder.zext(argument, wide) for argument in arguments)
        return builder.icmp_unsigned("<", builder.mul(left, up), builder.mul(right, down))

    return types.boolean(types.uint64, types.uint64, types.uint64, types.uint64), generate


@intrinsic
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


@intrinsic
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
