"""Kernels of CRC32C, the checksum that storage uses: by the processor's own instruction, or by tables."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from graphfeed.ops.cpu.jit import INTERPRETED, device_function, kernel
from graphfeed.ops.cpu.records.wire import load_word

POLYNOMIAL = 0x82F63B78
ONES = np.uint32(0xFFFFFFFF)


def make_tables() -> Any:
    """Return what each byte adds to the checksum of a word, from its last byte to its first."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (POLYNOMIAL if remainder & 1 else 0)
        tables[0, byte] = remainder
    for place in range(1, 8):
        tables[place] = (tables[place - 1] >> 8) ^ tables[0][tables[place - 1] & 0xFF]
    return tables


TABLES = make_tables()


def has_instruction() -> bool:
    """Tell whether Numba compiles for a processor with the instruction, which depends on its settings too."""
    return not INTERPRETED and "+sse4.2" in cpu_target.target_context.codegen().magic_tuple()[2]


def generate_add_word(_typing_context: Any, checksum: Any, word: Any) -> Any:
    """Return the checksum, a uint64, with the eight bytes of a word added."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        kind = ir.FunctionType(wide, [wide, wide])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse42.crc32.64.64")
        return builder.call(function, arguments)

    return types.uint64(checksum, word), generate


@device_function
def add_byte_by_table(checksum, byte):
    """Return the checksum with one more byte."""
    return np.uint64(TABLES[0, (checksum ^ np.uint64(byte)) & np.uint64(255)]) ^ (checksum >> np.uint64(8))


@device_function
def add_word_by_table(checksum, word):
    """Return the checksum with eight more bytes, by a look-up each."""
    word ^= checksum
    total = np.uint32(0)
    for place in range(8):
        byte = (word >> np.uint64(8 * place)) & np.uint64(255)
        total ^= TABLES[7 - place, byte]
    return np.uint64(total)


add_word: Any = intrinsic(generate_add_word) if has_instruction() else add_word_by_table
"""The instruction takes 0.1 ns for a byte and the tables take 0.5 ns. With tables, parsing records of 77 bytes takes
1.3 times as long. A package that is called for each record takes longer than all the rest."""


@device_function
def checksum_of(data, start, size):
    """Return the CRC32C of `size` bytes from an offset."""
    checksum = np.uint64(ONES)
    words = size >> 3
    for number in range(words):
        checksum = add_word(checksum, load_word(data, np.intp(start + 8 * number)))
    for at in range(start + 8 * words, start + size):
        checksum = add_byte_by_table(checksum, data[at])
    return np.uint32(checksum) ^ ONES


@device_function
def masked_checksum(data, start, size):
    """Return the CRC32C as records store it: rotated, with a constant added."""
    checksum = checksum_of(data, start, size)
    rotated = (checksum >> np.uint32(15)) | (checksum << np.uint32(17))
    return np.uint32(rotated + np.uint32(0xA282EAD8))


@kernel
def crc32c(data):
    """Return the CRC32C of bytes."""
    return checksum_of(data, np.int64(0), np.int64(data.size))


@kernel
def crc32c_by_table(data):
    """Return the same without the processor's instruction."""
    checksum = np.uint64(ONES)
    words = data.size >> 3
    for number in range(words):
        checksum = add_word_by_table(checksum, load_word(data, np.intp(8 * number)))
    for at in range(8 * words, data.size):
        checksum = add_byte_by_table(checksum, data[at])
    return np.uint32(checksum) ^ ONES
