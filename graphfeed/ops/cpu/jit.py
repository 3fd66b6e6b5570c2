"""Building blocks of kernels: the decorators, the argument types and the prefetch distance.

A kernel is a Python function whose annotations declare its argument types. It runs without the GIL, allocates nothing,
raises nothing, and calls only `@device_function`s, instructions and NumPy's scalar types, so its machine code does not
need Numba. With NUMBA_DISABLE_JIT=1 it runs as plain Python: the same results, a thousand times as slowly.

Loops over edges and rows, and only these, index arrays with `np.uintp`. Such an index can't be negative, so Numba emits
no test for Python's negative indices.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphfeed.ops.cpu.compiler.kernel import Kernel, device_function
from graphfeed.ops.cpu.compiler.program import Program
from graphfeed.ops.cpu.compiler.signature import INTERPRETED, ArrayType, Block, DTypes, dtype_name, fields_of
from graphfeed.ops.cpu.instructions import (
    copy_bytes,
    count_bits,
    interface_address,
    lanes_below,
    launch_kernel,
    less_product,
    load_word,
    lowest_bit,
    multiply_high,
    prefetch,
    read_at,
    square_root,
    will_need,
)

__all__ = [
    "AHEAD", "INTERPRETED", "Block", "EdgeTypes", "Float32s", "Float64s", "IdPairs", "Ids", "Int32s", "Int64Matrix",
    "Int64s", "Kernel", "Numbers", "Program", "SentIds", "UInt8s", "UInt16s", "UInt32Matrix", "UInt32s", "UInt64",
    "UInt64s", "Weights", "Words", "copy_bytes", "count_bits", "device_function", "dtype_name", "fields_of",
    "interface_address", "kernel", "lanes_below", "launch_kernel", "less_product", "load_word", "lowest_bit",
    "multiply_high", "prefetch", "read_at", "square_root", "will_need",
]  # fmt: skip

AHEAD = 32
"""Number of iterations by which a loop prefetches a value at a random index.

Large enough for a read from memory to finish, and small enough for the value to be still in the cache. With 8,
neighbour sampling takes 1.36 times as long (ogbn-products shaped graph).
"""

if TYPE_CHECKING:
    # Numba infers the types inside kernels, so mypy need not check them.
    Ids: TypeAlias = Any
    SentIds: TypeAlias = Any
    EdgeTypes: TypeAlias = Any
    Words: TypeAlias = Any
    Numbers: TypeAlias = Any
    Weights: TypeAlias = Any
    Int64s: TypeAlias = Any
    Int32s: TypeAlias = Any
    UInt64s: TypeAlias = Any
    Float64s: TypeAlias = Any
    Float32s: TypeAlias = Any
    UInt32s: TypeAlias = Any
    UInt16s: TypeAlias = Any
    UInt8s: TypeAlias = Any
    IdPairs: TypeAlias = Any
    Int64Matrix: TypeAlias = Any
    UInt32Matrix: TypeAlias = Any
    UInt64: TypeAlias = Any
else:
    Ids = ArrayType(DTypes("ids", ("int64", "int32")))
    SentIds = ArrayType(DTypes("sent ids", ("int64", "int32")))
    EdgeTypes = ArrayType(DTypes("types", ("uint8", "int32")))
    Words = ArrayType(DTypes("words", ("uint32", "uint64")))
    Numbers = ArrayType(DTypes("numbers", ("uint8", "uint16", "uint32", "uint64")))
    Weights = ArrayType(DTypes("weights", ("float32", "float64")))
    Int64s = ArrayType("int64")
    Int32s = ArrayType("int32")
    UInt64s = ArrayType("uint64")
    Float64s = ArrayType("float64")
    Float32s = ArrayType("float32")
    UInt32s = ArrayType("uint32")
    UInt16s = ArrayType("uint16")
    UInt8s = ArrayType("uint8")
    IdPairs = ArrayType(DTypes("ids", ("int64", "int32")), 2)
    Int64Matrix = ArrayType("int64", 2)
    UInt32Matrix = ArrayType("uint32", 2)
    UInt64 = np.uint64

kernel = Kernel
