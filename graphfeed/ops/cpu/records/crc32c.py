"""Kernel of CRC32C, a checksum common in storage: by an instruction of the processor, or by tables."""

from typing import Any

import numpy as np

from graphfeed.ops.cpu.instructions import add_to_crc32c, has_crc32c
from graphfeed.ops.cpu.jit import UInt8s, device_function, kernel, load_word

POLYNOMIAL = 0x82F63B78
ONES = np.uint32(0xFFFFFFFF)


def make_tables() -> Any:
    """Return the contribution of each byte value to the checksum of a word, by the byte's distance from its end."""
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


@device_function
def add_byte_by_table(checksum, byte):
    return np.uint64(TABLES[0, (checksum ^ np.uint64(byte)) & np.uint64(255)]) ^ (checksum >> np.uint64(8))


@device_function
def add_word_by_table(checksum, word):
    word ^= checksum
    total = np.uint32(0)
    for place in range(8):
        byte = (word >> np.uint64(8 * place)) & np.uint64(255)
        total ^= TABLES[7 - place, byte]
    return np.uint64(total)


@device_function
def add_word(checksum, word):
    """Return the checksum with eight bytes more.

    The instruction takes 0.1 ns per byte, the tables take 0.5 ns. With tables, parsing records of 77 bytes takes 1.3
    times as long. Calling a checksum library for each record would take longer than all other work together.
    """
    return add_to_crc32c(checksum, word) if has_crc32c() else add_word_by_table(checksum, word)


@device_function
def crc32c_of(data, start, size):
    checksum = np.uint64(ONES)
    words = size >> 3
    for number in range(words):
        checksum = add_word(checksum, load_word(data, start + 8 * number))
    for at in range(start + 8 * words, start + size):
        checksum = add_byte_by_table(checksum, data[at])
    return np.uint32(checksum) ^ ONES


@device_function
def masked_checksum(data, start, size):
    """Return the CRC32C in the form that TFRecord files store: rotated, with a constant added."""
    checksum = crc32c_of(data, start, size)
    rotated = (checksum >> np.uint32(15)) | (checksum << np.uint32(17))
    return np.uint32(rotated + np.uint32(0xA282EAD8))


@kernel
def crc32c(data: UInt8s) -> int:
    return crc32c_of(data, 0, data.size)
